#include "frontend/api/models.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/check.h"
#include "common/strings.h"
#include "frontend/api/error.h"
#include "frontend/openai/json.h"

namespace tandem {
namespace {

bool IsServed(const std::vector<std::string>& names, const std::string& model) {
  return std::find(names.begin(), names.end(), model) != names.end();
}

Status UnknownModel(const std::vector<std::string>& names, const std::string& model) {
  std::string valid;
  for (const std::string& name : names) valid += (valid.empty() ? "`" : ", `") + name + "`";
  constexpr size_t kMaxShownBytes = 256;
  return NotFoundError("the model `" + model.substr(0, kMaxShownBytes) +
                       "` does not exist; this server has " + valid)
      .WithParam("model");
}

Json ModelCard(const std::string& name, const std::string& root, int64_t created,
               int64_t max_model_len) {
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
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "vllm"},
          {"root", root},
          {"parent", nullptr},
          {"max_model_len", max_model_len},
          {"permission", Json::array({permission})}};
}

// The served model's length, or UNAVAILABLE while it is not ready.
StatusOr<int64_t> ServedLength(const ApiContext& context) {
  const auto* info = context.engine_client->engine_info();
  const Status health = context.engine_client->health();
  if (info == nullptr || !health.ok()) return UnavailableError(health.message());
  return info->max_model_len;
}

void RespondWith(Exchange& exchange, const StatusOr<std::string>& body) {
  exchange.Respond(body.ok() ? Response{200, *body, "application/json", {}}
                             : ErrorResponse(body.status()));
}

}  // namespace

StatusOr<std::string> ServedModel(const ApiOptions& options,
                                  const std::optional<std::string>& model) {
  const auto& names = options.served_model_names;
  CHECK(!names.empty());
  if (!model || model->empty()) return names.front();
  if (options.skip_model_name_validation || IsServed(names, *model)) return *model;
  return UnknownModel(names, *model);
}

std::string ModelListBody(const std::vector<std::string>& names, const std::string& root,
                          int64_t created, int64_t max_model_len) {
  Json cards = Json::array();
  for (const std::string& name : names) {
    cards.push_back(ModelCard(name, root, created, max_model_len));
  }
  return DumpJson(Json{{"object", "list"}, {"data", cards}});
}

StatusOr<std::string> ModelBody(const std::vector<std::string>& names, const std::string& name,
                                const std::string& root, int64_t created, int64_t max_model_len) {
  if (!IsServed(names, name)) return UnknownModel(names, name);
  return DumpJson(ModelCard(name, root, created, max_model_len));
}

Awaitable<void> HandleModels(Exchange& exchange, ApiContext* context) {
  const auto length = ServedLength(*context);
  if (!length.ok()) co_return RespondWith(exchange, length.status());
  RespondWith(exchange,
              ModelListBody(context->options.served_model_names, context->facts->model_root,
                            context->facts->started_at, *length));
}

Awaitable<void> HandleModel(Exchange& exchange, ApiContext* context) {
  const auto length = ServedLength(*context);
  if (!length.ok()) co_return RespondWith(exchange, length.status());
  const std::string name = exchange.request().PathAfter("/v1/models/");
  RespondWith(exchange, ModelBody(context->options.served_model_names, name,
                                  context->facts->model_root, context->facts->started_at, *length));
}

}  // namespace tandem
