#pragma once

// The HTTP surface: one row per endpoint. To add an endpoint, add its file to this folder and a row
// to routes.cc. Thread: main builds the table; handlers run on their exchange's shard.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/api/context.h"
#include "frontend/http/router.h"
#include "frontend/metrics/metrics.h"

namespace tandem {

// What endpoints report about the server as a whole.
struct ServerFacts {
  std::string model_root;  // the folder the model was loaded from
  int64_t started_at = 0;  // unix seconds
  bool track_load = false;
  bool dev_mode = false;                                   // DevRoutes exist
  std::vector<std::pair<std::string, std::string>> flags;  // effective values, without secrets
  std::function<int()> num_requests;
  std::function<bool()> is_draining;
};

// contexts: one per shard, by its index. Everything is borrowed and outlives the server.
std::vector<Route> ApiRoutes(std::vector<ApiContext*> contexts, const ServerFacts* facts,
                             const Metrics* metrics);

// The response for a request that HTTP itself refuses (ServerOptions::error).
Response HttpErrorResponse(int status, std::string_view message);

}  // namespace tandem
