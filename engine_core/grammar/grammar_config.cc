#include "engine_core/grammar/grammar_config.h"

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr char kFlag[] = "--structured-outputs-config: ";

Status WrongValue(const std::string& key, const Json& value, const char* allowed) {
  const std::string shown = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return InvalidArgumentError(kFlag + key + " is " + shown + ", must be " + allowed);
}

Status SetKey(const std::string& key, const Json& value, GrammarConfig* config) {
  if (key == "backend") {
    if (value == "auto" || value == "xgrammar") return OkStatus();
    return WrongValue(key, value, "\"auto\" or \"xgrammar\": no other library is built in");
  }
  if (key == "disable_any_whitespace") {
    if (!value.is_boolean()) return WrongValue(key, value, "true or false");
    config->defaults.disable_any_whitespace = value.get<bool>();
    return OkStatus();
  }
  if (key == "disable_additional_properties") {
    // Either way: an object has only the properties that its schema mentions.
    return value.is_boolean() ? OkStatus() : WrongValue(key, value, "true or false");
  }
  if (key == "reasoning_parser") {
    if (value == "") return OkStatus();
    return WrongValue(key, value, "empty: the parser is named by --reasoning-parser");
  }
  if (key == "enable_in_reasoning") {
    if (!value.is_boolean()) return WrongValue(key, value, "true or false");
    config->defaults.enable_in_reasoning = value.get<bool>();
    return OkStatus();
  }
  return InvalidArgumentError(kFlag + ("no key is called " + key));
}

}  // namespace

StatusOr<GrammarConfig> ParseGrammarConfig(const std::string& text) {
  GrammarConfig config;
  if (text.empty()) return config;
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgumentError(kFlag + std::string("not a JSON object"));
  for (const auto& [key, value] : json.items()) RETURN_IF_ERROR(SetKey(key, value, &config));
  return config;
}

}  // namespace tandem
