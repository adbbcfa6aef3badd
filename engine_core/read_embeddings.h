#pragma once

// The prompt embeddings of a request from the wire: checked, and taken out of the message.
// A request has no token ids where it has embeddings: its prompt_token_ids are absent, or zeros for
// the rows, and after those the outputs of an earlier run.
// Thread: engine loop. Failure: INVALID_ARGUMENT for the client; UNIMPLEMENTED where the engine
// does not accept embeddings.

#include <memory>

#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "engine_core/kv_cache/prompt_embeddings.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// Null: the request has none. Otherwise prompt_token_ids have a zero for each row afterwards.
StatusOr<std::shared_ptr<const PromptEmbeddings>> ReadEmbeddings(const ExecutorLimits& limits,
                                                                 wire::EngineCoreRequest* request);

}  // namespace tandem
