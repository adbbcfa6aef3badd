#pragma once

// GET /v1/models: one card per served name and per adapter, once the engine is ready (503 before:
// clients and probes read the list as "a request would succeed now"). GET /v1/models/{name}: its
// card, or 404. Names may contain slashes.
// Thread: the exchange's shard.

#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "frontend/adapters/served_adapters.h"
#include "frontend/api/context.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"

namespace tandem {

// Whether it is one of the model's own names.
bool IsServed(const std::vector<std::string>& names, const std::string& model);

// What a request's `model` names.
struct NamedModel {
  std::string name;
  const ServedAdapter* adapter = nullptr;  // null: the model itself
};
// NOT_FOUND lists what is there.
StatusOr<NamedModel> FindModel(const ApiOptions& options, const ServedAdapters& adapters,
                               const std::optional<std::string>& model);

// What the cards show. Borrows.
struct ModelCards {
  const std::vector<std::string>& names;  // of the model itself
  const ServedAdapters& adapters;
  std::string root;  // the model's folder
  int64_t created = 0;
  int64_t max_model_len = 0;
};
std::string ModelListBody(const ModelCards& cards);
// NOT_FOUND for a name that is not served.
StatusOr<std::string> ModelBody(const ModelCards& cards, const std::string& name);

Awaitable<void> HandleModels(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleModel(Exchange& exchange, ApiContext* context);

}  // namespace tandem
