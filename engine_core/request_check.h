#pragma once

// The engine's own check of a request. The frontend checks the same and more, but the engine does
// not rely on that for anything that could end the process or disturb other requests. Pure. A
// refusal is INVALID_ARGUMENT (or UNIMPLEMENTED for what this engine does not do) with a message
// for the client. Embeddings and images are checked before
// (read_embeddings.h, read_images.h).

#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "proto_msgpack/schema.h"

namespace tandem {

Status CheckRequest(const wire::EngineCoreRequest& request, const ExecutorLimits& limits);

}  // namespace tandem
