#include "frontend/adapters/adapter_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/shorten.h"
#include "frontend/openai/json.h"

namespace tandem {
namespace {

bool IsAmong(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Json ToJson(const AdapterModule& module) {
  Json json = {{"name", module.name},
               {"path", module.path},
               {"is_3d_lora_weight", module.is_3d_lora_weight}};
  if (module.base_model_name) json["base_model_name"] = *module.base_model_name;
  return json;
}

bool IsModule(const Json& json) {
  return json.is_object() && json.contains("name") && json["name"].is_string() &&
         json.contains("path") && json["path"].is_string() &&
         json.value("base_model_name", Json("")).is_string() &&
         json.value("is_3d_lora_weight", Json(false)).is_boolean();
}

AdapterModule ModuleFrom(const Json& json) {
  AdapterModule module{json["name"].get<std::string>(), json["path"].get<std::string>()};
  if (json.contains("base_model_name")) {
    module.base_model_name = json["base_model_name"].get<std::string>();
  }
  module.is_3d_lora_weight = json.value("is_3d_lora_weight", false);
  return module;
}

AdapterModule ModuleOf(const ServedAdapter& adapter) {
  const wire::LoraRequest& lora = adapter.lora;
  return {lora.name, lora.path, lora.base_model_name, lora.is_3d_lora_weight};
}

Json ToJson(const ServedAdapter& adapter) {
  Json json = ToJson(ModuleOf(adapter));
  json["id"] = adapter.lora.id;
  json["created"] = adapter.created;
  json["files"] = adapter.files;
  return json;
}

bool IsAdapter(const Json& json) {
  return IsModule(json) && json.contains("id") && json["id"].is_number_integer() &&
         json.contains("created") && json["created"].is_number_integer() &&
         json.value("files", Json("")).is_string();
}

ServedAdapter MakeAdapter(const AdapterModule& module, int64_t id, int64_t created) {
  return {.lora = {.name = module.name,
                   .id = id,
                   .path = AbsoluteAdapterPath(module.path),
                   .base_model_name = module.base_model_name,
                   .is_3d_lora_weight = module.is_3d_lora_weight},
          .created = created};
}

bool IsListOf(const Json& json, const char* name, bool (*is_item)(const Json&)) {
  return json.contains(name) && json[name].is_array() &&
         std::all_of(json[name].begin(), json[name].end(), is_item);
}

bool Has(const std::vector<AdapterModule>& modules, const AdapterModule& module) {
  return std::find(modules.begin(), modules.end(), module) != modules.end();
}

}  // namespace

StatusOr<ServedAdapter> AdapterTable::PlanLoad(const AdapterModule& module, bool in_place,
                                               int64_t now) {
  if (module.name.empty() || module.path.empty()) {
    return InvalidArgumentError("Both 'lora_name' and 'lora_path' must be provided.");
  }
  if (IsAmong(base_names_, module.name)) {
    return InvalidArgumentError("The lora adapter '" + Shorten(module.name) +
                                "' conflicts with a served base model.");
  }
  const ServedAdapter* const present = served_->Find(module.name);
  if (present != nullptr && !in_place) {
    return InvalidArgumentError("The lora adapter '" + Shorten(module.name) +
                                "' has already been loaded. If you want to load the adapter in "
                                "place, set 'load_inplace' to True.");
  }
  if (present == nullptr && served_->list().size() >= kMostAdapters) {
    return InvalidArgumentError("At most " + std::to_string(kMostAdapters) +
                                " LoRA adapters can be served. Unload one first.");
  }
  ServedAdapter planned = MakeAdapter(module, present != nullptr ? present->lora.id : next_id_++,
                                      present != nullptr ? present->created : now);
  if (present != nullptr && !module.base_model_name) {
    planned.lora.base_model_name = present->lora.base_model_name;
  }
  // Before an engine reads them, to see later changes.
  planned.files = AdapterFilesIdentity(planned.lora.path);
  return planned;
}

void AdapterTable::Commit(ServedAdapter adapter) {
  std::vector<ServedAdapter> list = served_->list();
  const auto same = std::find_if(list.begin(), list.end(), [&](const ServedAdapter& each) {
    return each.lora.name == adapter.lora.name;
  });
  if (same != list.end()) {
    *same = std::move(adapter);
  } else {
    list.push_back(std::move(adapter));
  }
  served_ = std::make_shared<const ServedAdapters>(std::move(list));
}

StatusOr<ServedAdapter> AdapterTable::Remove(const std::string& name) {
  if (name.empty()) {
    return InvalidArgumentError("'lora_name' needs to be provided to unload a LoRA adapter.");
  }
  const ServedAdapter* const present = served_->Find(name);
  if (present == nullptr) {
    return NotFoundError("The lora adapter '" + Shorten(name) + "' cannot be found.");
  }
  ServedAdapter removed = *present;
  std::vector<ServedAdapter> list = served_->list();
  std::erase_if(list, [&](const ServedAdapter& each) { return each.lora.name == name; });
  served_ = std::make_shared<const ServedAdapters>(std::move(list));
  return removed;
}

// ---- At the start ----

StatusOr<std::vector<wire::LoraRequest>> AdapterTable::TakeModules(
    const std::vector<AdapterModule>& modules, int64_t now) {
  std::vector<wire::LoraRequest> taken;
  for (const AdapterModule& module : modules) {
    const bool in_place = served_->Find(module.name) != nullptr;
    ASSIGN_OR_RETURN(ServedAdapter adapter, PlanLoad(module, in_place, now));
    taken.push_back(adapter.lora);
    Commit(std::move(adapter));
    modules_.push_back(module);
  }
  return taken;
}

StatusOr<std::vector<wire::LoraRequest>> AdapterTable::TakeOver(
    std::string_view text, const std::vector<AdapterModule>& modules, int64_t now) {
  RETURN_IF_ERROR(TakeText(text));
  const std::vector<AdapterModule> before = std::exchange(modules_, {});
  for (const AdapterModule& module : before) {
    const ServedAdapter* const served = served_->Find(module.name);
    const bool is_dropped =
        !Has(modules, module) && served != nullptr && ModuleOf(*served) == module;
    if (is_dropped) RETURN_IF_ERROR(Remove(module.name).status());
  }
  std::vector<AdapterModule> others;
  for (const AdapterModule& module : modules) {
    (Has(before, module) ? modules_ : others).push_back(module);
  }
  return TakeModules(others, now);
}

std::string AdapterTable::ToText() const {
  if (next_id_ == 1) return "";
  Json adapters = Json::array(), modules = Json::array();
  for (const ServedAdapter& adapter : served_->list()) adapters.push_back(ToJson(adapter));
  for (const AdapterModule& module : modules_) modules.push_back(ToJson(module));
  return DumpJson({{"next_id", next_id_}, {"adapters", adapters}, {"modules", modules}});
}

Status AdapterTable::TakeText(std::string_view text) {
  const StatusOr<JsonDocument> parsed = ParseJson(text);
  const bool is_table = parsed.ok() && (*parsed)->is_object() && (*parsed)->contains("next_id") &&
                        (**parsed)["next_id"].is_number_integer() &&
                        IsListOf(**parsed, "adapters", IsAdapter) &&
                        IsListOf(**parsed, "modules", IsModule);
  if (!is_table) {
    return InternalError("the frontend before has a list of adapters of another form");
  }
  const Json& json = **parsed;
  std::vector<ServedAdapter> list;
  for (const Json& each : json["adapters"]) {
    const AdapterModule module = ModuleFrom(each);
    // A name that the model itself has meanwhile stays the model's.
    if (IsAmong(base_names_, module.name)) continue;
    list.push_back(MakeAdapter(module, each["id"].get<int64_t>(), each["created"].get<int64_t>()));
    list.back().files = each.value("files", "");
  }
  for (const Json& each : json["modules"]) modules_.push_back(ModuleFrom(each));
  next_id_ = json["next_id"].get<int64_t>();
  served_ = std::make_shared<const ServedAdapters>(std::move(list));
  return OkStatus();
}

}  // namespace tandem
