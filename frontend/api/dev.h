#pragma once

// Routes for training and measuring: caches, pause, sleep, the server's configuration. They exist
// only with TANDEM_SERVER_DEV_MODE=1 (or VLLM_SERVER_DEV_MODE=1), because any client that reaches
// them can stop the service. Each is a utility call to every engine (/abort_requests: to every
// shard) and responds once all have replied. A call that an engine does not support is an error
// with the engine's message. Thread: the exchange's shard.

#include <string>
#include <utility>
#include <vector>

#include "frontend/api/context.h"
#include "frontend/http/router.h"

namespace tandem {

// contexts: as in ApiRoutes.
std::vector<Route> DevRoutes(const std::vector<ApiContext*>& contexts);

// The environment variables that the server reads, without any that may hold a secret.
std::vector<std::pair<std::string, std::string>> ServerEnvironment(const char* const* environment);

}  // namespace tandem
