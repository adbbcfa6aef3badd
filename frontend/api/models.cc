#include "frontend/api/models.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/check.h"
#include "common/strings.h"
#include "frontend/api/error.h"
#include "frontend/api/routes.h"
#include "frontend/openai/json.h"

namespace tandem {

StatusOr<std::string> ServedModel(const ApiOptions& options,
                                  const std::optional<std::string>& model) {
  const auto& names = options.served_model_names;
  CHECK(!names.empty());
  if (!model || model->empty()) return names.front();
  if (options.skip_model_name_validation) return *model;
  if (std::find(names.begin(), names.end(), *model) != names.end()) return *model;
  std::string valid;
  for (const std::string& name : names) valid += (valid.empty() ? "`" : ", `") + name + "`";
  constexpr size_t kMaxShownBytes = 256;
  return NotFoundError("the model `" + model->substr(0, kMaxShownBytes) +
                       "` does not exist; this server has " + valid)
      .WithParam("model");
}

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
