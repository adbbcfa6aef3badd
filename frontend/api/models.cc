#include "frontend/api/models.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/check.h"
#include "common/shorten.h"
#include "common/strings.h"
#include "frontend/api/error.h"
#include "frontend/openai/json.h"

namespace tandem {
namespace {

// Base names first, as many as a line may show.
Status UnknownModel(const std::vector<std::string>& names, const ServedAdapters& adapters,
                    const std::string& model) {
  constexpr size_t kMaxListBytes = 512;
  std::string valid;
  size_t num_left = names.size() + adapters.list().size();
  const auto add = [&](const std::string& name) {
    if (valid.size() + name.size() > kMaxListBytes) return;
    valid += (valid.empty() ? "`" : ", `") + name + "`";
    --num_left;
  };
  for (const std::string& name : names) add(name);
  for (const ServedAdapter& adapter : adapters.list()) add(adapter.lora.name);
  if (num_left > 0) valid += " and " + std::to_string(num_left) + " more";
  return NotFoundError("the model `" + Shorten(model) + "` does not exist; this server has " +
                       valid)
      .WithParam("model");
}

// parent and max_model_len: null where there is none.
Json ModelCard(const std::string& name, const std::string& root, int64_t created, Json parent,
               Json max_model_len) {
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
          {"parent", std::move(parent)},
          {"max_model_len", std::move(max_model_len)},
          {"permission", Json::array({permission})}};
}

Json BaseCard(const ModelCards& cards, const std::string& name) {
  return ModelCard(name, cards.root, cards.created, nullptr, cards.max_model_len);
}

Json AdapterCard(const ModelCards& cards, const ServedAdapter& adapter) {
  const std::string base = adapter.lora.base_model_name.value_or("");
  const std::string& parent = IsServed(cards.names, base) ? base : cards.names.front();
  return ModelCard(adapter.lora.name, adapter.lora.path, adapter.created, parent, nullptr);
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

bool IsServed(const std::vector<std::string>& names, const std::string& model) {
  return std::find(names.begin(), names.end(), model) != names.end();
}

StatusOr<NamedModel> FindModel(const ApiOptions& options, const ServedAdapters& adapters,
                               const std::optional<std::string>& model) {
  const auto& names = options.served_model_names;
  CHECK(!names.empty());
  if (!model || model->empty()) return NamedModel{names.front()};
  if (IsServed(names, *model)) return NamedModel{*model};
  const ServedAdapter* const adapter = adapters.Find(*model);
  if (adapter != nullptr || options.skip_model_name_validation) return NamedModel{*model, adapter};
  return UnknownModel(names, adapters, *model);
}

std::string ModelListBody(const ModelCards& cards) {
  Json list = Json::array();
  for (const std::string& name : cards.names) list.push_back(BaseCard(cards, name));
  for (const ServedAdapter& adapter : cards.adapters.list()) {
    list.push_back(AdapterCard(cards, adapter));
  }
  return DumpJson(Json{{"object", "list"}, {"data", std::move(list)}});
}

StatusOr<std::string> ModelBody(const ModelCards& cards, const std::string& name) {
  if (IsServed(cards.names, name)) return DumpJson(BaseCard(cards, name));
  const ServedAdapter* const adapter = cards.adapters.Find(name);
  if (adapter != nullptr) return DumpJson(AdapterCard(cards, *adapter));
  return UnknownModel(cards.names, cards.adapters, name);
}

namespace {

ModelCards CardsOf(const ApiContext& context, int64_t max_model_len) {
  return {context.options.served_model_names, *context.adapters, context.facts->model_root,
          context.facts->started_at, max_model_len};
}

}  // namespace

Awaitable<void> HandleModels(Exchange& exchange, ApiContext* context) {
  const auto length = ServedLength(*context);
  if (!length.ok()) co_return RespondWith(exchange, length.status());
  RespondWith(exchange, ModelListBody(CardsOf(*context, *length)));
}

Awaitable<void> HandleModel(Exchange& exchange, ApiContext* context) {
  const auto length = ServedLength(*context);
  if (!length.ok()) co_return RespondWith(exchange, length.status());
  const std::string name = exchange.request().PathAfter("/v1/models/");
  RespondWith(exchange, ModelBody(CardsOf(*context, *length), name));
}

}  // namespace tandem
