#pragma once

// GET /v1/models: one card per served name, once the engine is ready (503 before: clients and
// probes read the list as "a request would succeed now"). GET /v1/models/{name}: its card, or 404.
// Names may contain slashes.
// Thread: the exchange's shard.

#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "frontend/api/context.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"

namespace tandem {

// The served name for a request's `model`. NOT_FOUND lists the valid ones.
StatusOr<std::string> ServedModel(const ApiOptions& options,
                                  const std::optional<std::string>& model);

std::string ModelListBody(const std::vector<std::string>& names, const std::string& root,
                          int64_t created, int64_t max_model_len);

// NOT_FOUND for a name that is not served.
StatusOr<std::string> ModelBody(const std::vector<std::string>& names, const std::string& name,
                                const std::string& root, int64_t created, int64_t max_model_len);

Awaitable<void> HandleModels(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleModel(Exchange& exchange, ApiContext* context);

}  // namespace tandem
