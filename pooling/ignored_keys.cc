#include "pooling/ignored_keys.h"

#include <utility>

#include "pooling/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// null when there is no such file, or none that can be read.
Json ReadJson(const std::string& path) {
  StatusOr<Json> json = ReadModelJson(path);
  return json.ok() ? *std::move(json) : Json();
}

bool Has(const Json& object, const char* key, const Json& value) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && *found == value;
}

}  // namespace

std::vector<std::string> IgnoredPoolingKeys(const std::string& model) {
  std::vector<std::string> lines;
  const Json modules = ReadJson(model + "/modules.json");
  if (!modules.is_array()) return lines;
  const std::string transformer = model + "/sentence_bert_config.json";
  if (Has(ReadJson(transformer), "do_lower_case", true)) {
    lines.push_back(transformer +
                    ": do_lower_case has no effect: texts reach the tokenizer as they are");
  }
  for (const Json& module : modules) {
    if (!module.is_object() || !module.contains("path") || !module["path"].is_string()) continue;
    const std::string file = model + "/" + module["path"].get<std::string>() + "/config.json";
    if (Has(ReadJson(file), "include_prompt", false)) {
      lines.push_back(file + ": include_prompt false has no effect: a prompt's tokens are pooled");
    }
  }
  return lines;
}

}  // namespace tandem
