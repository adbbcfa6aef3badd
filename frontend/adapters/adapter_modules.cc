#include "frontend/adapters/adapter_modules.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/file_identity.h"
#include "common/strings.h"
#include "frontend/openai/json.h"

namespace tandem {
namespace {

Status BadItem(const std::string& item, const std::string& why) {
  return InvalidArgumentError("--lora-modules " + item + ": " + why);
}

constexpr const char* kForms =
    "must be name=path without a comma, or a JSON object with name, path and, if need be, "
    "base_model_name and "
    "is_3d_lora_weight";

StatusOr<AdapterModule> ParseObject(const std::string& item) {
  const StatusOr<JsonDocument> json = ParseJson(item);
  if (!json.ok() || !(*json)->is_object()) return BadItem(item, kForms);
  AdapterModule module;
  for (const auto& [key, value] : (*json)->items()) {
    if (key == "name" && value.is_string()) {
      module.name = value.get<std::string>();
    } else if (key == "path" && value.is_string()) {
      module.path = value.get<std::string>();
    } else if (key == "base_model_name" && (value.is_string() || value.is_null())) {
      if (value.is_string()) module.base_model_name = value.get<std::string>();
    } else if (key == "is_3d_lora_weight" && value.is_boolean()) {
      module.is_3d_lora_weight = value.get<bool>();
    } else {
      return BadItem(
          item, "its key " + key +
                    (" is not known or has a value of a wrong type; it " + std::string(kForms)));
    }
  }
  return module;
}

StatusOr<AdapterModule> ParseItem(const std::string& item) {
  const size_t equals = item.find('=');
  if (equals != item.npos && item.find(',') == item.npos) {
    return AdapterModule{item.substr(0, equals), item.substr(equals + 1)};
  }
  return ParseObject(item);
}

}  // namespace

StatusOr<std::vector<AdapterModule>> ParseAdapterModules(
    const std::vector<std::string>& items, const std::vector<std::string>& base_names) {
  std::vector<AdapterModule> modules;
  for (const std::string& item : items) {
    if (item.empty()) continue;
    if (FindInvalidUtf8(item) != std::string::npos) {
      return BadItem(item, "is not UTF-8, which names and paths of adapters must be");
    }
    ASSIGN_OR_RETURN(AdapterModule module, ParseItem(item));
    if (module.name.empty() || module.path.empty()) return BadItem(item, kForms);
    const std::string& name = module.name;
    if (std::find(base_names.begin(), base_names.end(), name) != base_names.end()) {
      return BadItem(item, name + " is a name of the model itself");
    }
    const bool is_taken = std::any_of(modules.begin(), modules.end(),
                                      [&](const AdapterModule& each) { return each.name == name; });
    if (is_taken) return BadItem(item, "another adapter has the name " + name);
    module.path = AbsoluteAdapterPath(module.path);
    modules.push_back(std::move(module));
  }
  return modules;
}

std::string AbsoluteAdapterPath(const std::string& path) {
  const char* const home = std::getenv("HOME");
  if (path.starts_with("~/") && home != nullptr) return home + path.substr(1);
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

std::string AdapterFilesIdentity(const std::string& path) {
  return FileIdentity(path + "/adapter_config.json") +
         FileIdentity(path + "/adapter_model.safetensors");
}

}  // namespace tandem
