#pragma once

// GET /v1/models: one card per served name, once the engine is ready (503 before: clients and
// probes take the list as "a request would be answered now").
// Thread: the exchange's shard.

#include <string>
#include <vector>

#include "frontend/api/generation.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"

namespace tandem {

struct ServerFacts;

std::string ModelListBody(const std::vector<std::string>& names, const std::string& root,
                          int64_t created, int64_t max_model_len);

Awaitable<void> HandleModels(Exchange& exchange, ApiContext* context, const ServerFacts* facts);

}  // namespace tandem
