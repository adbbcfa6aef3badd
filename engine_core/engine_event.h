#pragma once

// What the engine's loop is given, whatever thread it comes from: the one way in. EngineCore takes
// events in the order of the mailbox; that order, with the clock's readings and the executor's
// results, decides everything the engine does.
// To add a kind: a type here and an EngineCore::On for it; without the second it does not compile.
// Thread: values; pushed by the wire, signal, compiler and adapter threads, handled on the engine
// loop.

#include <variant>

#include "engine_core/adapters/adapter_link.h"
#include "engine_core/grammar/grammar_link.h"
#include "engine_core/scheduler/grammar_result.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// The process is asked to end: no new requests, running ones get shutdown_timeout_s.
// Asked a second time: at once.
struct ShutdownRequest {};

// Another engine has taken over: this one ends when the requests that it still has have ended.
struct LeaveRequest {};

// The operator wants to see requests, queues and blocks in the log.
struct LogStateRequest {};

using EngineEvent = std::variant<wire::EngineInput, GrammarCompiled, GrammarResult, AdapterLoaded,
                                 ShutdownRequest, LeaveRequest, LogStateRequest>;

}  // namespace tandem
