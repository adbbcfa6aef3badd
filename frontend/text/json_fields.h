#pragma once

// Reads fields of tokenizer.json and tokenizer_config.json without exceptions. Pure; any thread.
// A missing field and one that is null give the fallback; one of another type an InvalidArgument
// that names it.

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/status.h"

namespace tandem {

// null when missing or when spec is not an object.
inline const nlohmann::json& Field(const nlohmann::json& spec, const char* name) {
  static const nlohmann::json kNull;
  if (!spec.is_object()) return kNull;
  const auto it = spec.find(name);
  return it == spec.end() ? kNull : *it;
}

inline Status WrongType(std::string_view name, const nlohmann::json& value,
                        std::string_view expected) {
  return InvalidArgumentError(std::string(name) + " is " + value.type_name() + ", must be " +
                              std::string(expected));
}

inline StatusOr<bool> BoolField(const nlohmann::json& spec, const char* name, bool fallback) {
  const nlohmann::json& value = Field(spec, name);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) return WrongType(name, value, "a boolean");
  return value.get<bool>();
}

inline StatusOr<std::string> StringField(const nlohmann::json& spec, const char* name,
                                         std::string_view fallback) {
  const nlohmann::json& value = Field(spec, name);
  if (value.is_null()) return std::string(fallback);
  if (!value.is_string()) return WrongType(name, value, "a string");
  return value.get<std::string>();
}

// The `type` of a part; InvalidArgument when the part is no object or has none.
inline StatusOr<std::string> KindOf(const nlohmann::json& spec, std::string_view part) {
  const nlohmann::json& value = Field(spec, "type");
  if (!value.is_string()) {
    return InvalidArgumentError(std::string(part) + " has no \"type\"");
  }
  return value.get<std::string>();
}

}  // namespace tandem
