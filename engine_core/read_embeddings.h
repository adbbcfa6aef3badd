#pragma once

// The prompt embeddings of a request from the wire: checked, and taken out of the message.
// A prompt is rows alone, whose prompt_token_ids are absent or zeros, or has both: then there are
// ids and rows for every position, and prompt_is_token_ids has which of the two counts. Outputs of
// an earlier run come after the prompt.
// Thread: engine loop. Failure: INVALID_ARGUMENT for the client; UNIMPLEMENTED where the engine
// does not accept embeddings.

#include <memory>

#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "engine_core/kv_cache/prompt_embeddings.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// Null: the request has none. Otherwise prompt_token_ids have a zero in place of each row
// afterwards.
StatusOr<std::shared_ptr<const PromptEmbeddings>> ReadEmbeddings(const ExecutorLimits& limits,
                                                                 wire::EngineCoreRequest* request);

}  // namespace tandem
