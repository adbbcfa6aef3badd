#include "frontend/api/models.h"

#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "frontend/api/error.h"
#include "frontend/api/routes.h"
#include "frontend/openai/json.h"

namespace tandem {

std::string ModelListBody(const std::vector<std::string>& names, const std::string& root,
                          int64_t created, int64_t max_model_len) {
  Json cards = Json::array();
  for (const std::string& name : names) {
    const Json permission = {{"id", "modelperm-" + RandomHex(16)},
                             {"object", "model_permission"},
                             {"created", created},
                             {"allow_create_engine", false},
                             {"allow_sampling", true},
                             {"allow_logprobs", true},
                             {"allow_search_indices", false},
                             {"allow_view", true},
                             {"allow_fine_tuning", false},
                             {"organization", "*"},
                             {"group", nullptr},
                             {"is_blocking", false}};
    cards.push_back({{"id", name},
                     {"object", "model"},
                     {"created", created},
                     {"owned_by", "vllm"},
                     {"root", root},
                     {"parent", nullptr},
                     {"max_model_len", max_model_len},
                     {"permission", Json::array({permission})}});
  }
  return DumpJson(Json{{"object", "list"}, {"data", cards}});
}

Awaitable<void> HandleModels(Exchange& exchange, ApiContext* context, const ServerFacts* facts) {
  const auto* info = context->engine_client->engine_info();
  const Status health = context->engine_client->health();
  if (info == nullptr || !health.ok()) {
    exchange.Respond(ErrorResponse(UnavailableError(health.message())));
    co_return;
  }
  exchange.Respond({200,
                    ModelListBody(context->options.served_model_names, facts->model_root,
                                  facts->started_at, info->max_model_len),
                    "application/json",
                    {}});
}

}  // namespace tandem
