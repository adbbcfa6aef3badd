#pragma once

// What the engine accepts of a request, whoever sent it: the frontend checks the same and more, but
// the engine does not take its word for anything that could end the process or disturb others.
// Pure. A refusal is INVALID_ARGUMENT (or UNIMPLEMENTED for what this engine does not do) with a
// message for the client.

#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "proto_msgpack/schema.h"

namespace tandem {

Status CheckRequest(const wire::EngineCoreRequest& request, const ExecutorLimits& limits);

}  // namespace tandem
