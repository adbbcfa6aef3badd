#pragma once

// Ends requests that run, by the ids of their responses. Thread: the exchange's shard; each shard
// ends its own.

#include <vector>

#include "frontend/api/context.h"
#include "frontend/http/router.h"

namespace tandem {

// What a body without ids means: an error, or all requests, which can stop the service.
enum class AbortScope { kNamed, kNamedOrAll };

// POST with {"request_ids": [...]}. contexts: as in ApiRoutes.
Handler AbortsRequests(const std::vector<ApiContext*>& contexts, AbortScope scope);

}  // namespace tandem
