#pragma once

// The HTTP surface: one row per endpoint. To add an endpoint, add its file to this folder and a row
// to routes.cc. Thread: main builds the table; handlers run on their exchange's shard.

#include <vector>

#include "frontend/api/context.h"
#include "frontend/http/router.h"

namespace tandem {

// contexts: one per shard, by its index. Everything is borrowed and outlives the server.
std::vector<Route> ApiRoutes(std::vector<ApiContext*> contexts);

}  // namespace tandem
