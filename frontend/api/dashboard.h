#pragma once

// /dashboard: a page for operators, and /dashboard/state, what it shows besides /metrics: engines
// and live requests. The page holds no data and loads nothing from elsewhere, so it is open; the
// state needs the API key. Thread: the shard's that is asked; the others are asked by it.

#include <string_view>
#include <vector>

#include "frontend/api/context.h"
#include "frontend/http/router.h"

namespace tandem {

// Requests that the state lists, the oldest of each shard; it counts all.
constexpr size_t kMaxListedRequests = 100;

// The page as HTML (dashboard.html in this folder).
std::string_view DashboardPage();

std::vector<Route> DashboardRoutes(const std::vector<ApiContext*>& contexts);

}  // namespace tandem
