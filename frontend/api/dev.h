#pragma once

// The routes of an operator who trains or measures: caches, pause, sleep, what the server runs
// with. They exist only with TANDEM_SERVER_DEV_MODE=1 (or VLLM_SERVER_DEV_MODE=1), because whoever
// may ask can stop the service. Each is a utility call to every engine (/abort_requests: to every
// shard); the answer comes when all have answered. What an engine cannot do is an error that says
// so. Thread: the exchange's shard.

#include <string>
#include <utility>
#include <vector>

#include "frontend/api/context.h"
#include "frontend/http/router.h"

namespace tandem {

struct ServerFacts;

// contexts, facts: as in ApiRoutes.
std::vector<Route> DevRoutes(const std::vector<ApiContext*>& contexts, const ServerFacts* facts);

// Names and values of environment variables that the server reads, without what may be a secret.
std::vector<std::pair<std::string, std::string>> ServerEnvironment(const char* const* environment);

}  // namespace tandem
