#include "grammar/compiler/json_schema_check.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "grammar/compiler/json_pattern.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLeftOut[] = {
    "not", "if", "dependentRequired", "dependentSchemas", "uniqueItems", "contains"};
// Of several a library takes the first that a schema has, and leaves out what stands beside it.
constexpr const char* kUnions[] = {"anyOf", "oneOf", "allOf"};
// Limits that are read together with a type, or with a keyword of the next list.
constexpr const char* kLimits[] = {
    "minLength",  "maxLength",        "pattern",          "minimum",       "maximum",
    "multipleOf", "exclusiveMinimum", "exclusiveMaximum", "minItems",      "maxItems",
    "required",   "propertyNames",    "minProperties",    "maxProperties", "patternProperties"};
constexpr const char* kParts[] = {"properties", "additionalProperties", "unevaluatedProperties",
                                  "items",      "prefixItems",          "unevaluatedItems"};
constexpr const char* kOneSchema[] = {"items", "additionalProperties", "unevaluatedProperties",
                                      "unevaluatedItems"};
constexpr const char* kListOfSchemas[] = {"prefixItems", "items", "allOf", "anyOf", "oneOf"};
constexpr const char* kSchemasByName[] = {"properties", "patternProperties", "$defs",
                                          "definitions"};

Status Refuse(const std::string& what, const std::string& path, const std::string& why) {
  return InvalidArgumentError("the JSON schema has " + what + " at #" + path + ", " + why);
}

std::string Quoted(const std::string& keyword) { return "\"" + keyword + "\""; }

// The first of these keywords that a schema has; empty: none.
template <size_t kCount>
std::string FirstOf(const char* const (&keywords)[kCount], const Json& schema) {
  for (const char* keyword : keywords) {
    if (schema.contains(keyword)) return keyword;
  }
  return "";
}

bool IsOfType(const Json& value, const std::string& type) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
  }
  return type == (value.is_number() ? "number" : value.type_name());
}

// The values of `const` and `enum` stand alone, whatever their `type` is.
Status CheckValues(const Json& schema, const std::string& path) {
  const Json values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
  const Json types = schema.value("type", Json());
  const auto is_excluded = [&](const Json& value) {
    if (types.is_string()) return !IsOfType(value, types.get<std::string>());
    return types.is_array() && std::none_of(types.begin(), types.end(), [&](const Json& type) {
             return type.is_string() && IsOfType(value, type.get<std::string>());
           });
  };
  if (values.is_array() && std::any_of(values.begin(), values.end(), is_excluded)) {
    return Refuse("values", path, "which its \"type\" excludes");
  }
  return OkStatus();
}

Status CheckRequired(const Json& schema, const std::string& path) {
  const auto required = schema.find("required");
  if (required == schema.end() || !required->is_array()) return OkStatus();
  const Json properties = schema.value("properties", Json::object());
  for (const Json& name : *required) {
    if (!name.is_string() || properties.contains(name.get<std::string>())) continue;
    return Refuse("the name " + name.dump() + " in \"required\"", path,
                  "which is none of its \"properties\" and cannot be enforced");
  }
  return OkStatus();
}

Status CheckPattern(const std::string& pattern, const std::string& path) {
  if (MatchesUnescapedText(pattern)) return OkStatus();
  return Refuse("the pattern " + Json(pattern).dump(), path,
                "which matches only characters that JSON escapes and cannot be enforced");
}

// Whether the keyword only allows or forbids properties that an output does not have in any case.
bool IsAboutOthers(const Json& schema, const std::string& keyword) {
  return schema[keyword].is_boolean();
}

// What a keyword means may depend on those beside it.
Status CheckTogether(const Json& schema, const std::string& path, bool has_type) {
  if (schema.contains("$ref")) return OkStatus();  // the others have no effect
  if (schema.contains("const") || schema.contains("enum")) return CheckValues(schema, path);
  const std::string limit = FirstOf(kLimits, schema), part = FirstOf(kParts, schema);
  if (const std::string keyword = FirstOf(kUnions, schema); !keyword.empty()) {
    const std::string& beside = limit.empty() ? part : limit;
    if (beside.empty() || IsAboutOthers(schema, beside)) return OkStatus();
    return Refuse(Quoted(beside) + " beside " + Quoted(keyword), path,
                  "which cannot be enforced together");
  }
  if (!has_type && part.empty() && !limit.empty()) {
    return Refuse(Quoted(limit) + " without \"type\"", path, "which cannot be enforced");
  }
  return CheckRequired(schema, path);
}

Status CheckSchema(const Json& schema, const std::string& path, bool has_type = false) {
  if (!schema.is_object()) return OkStatus();
  for (const char* keyword : kLeftOut) {
    const auto found = schema.find(keyword);
    if (found == schema.end() || *found == false) continue;
    return Refuse("the keyword " + Quoted(keyword), path, "which cannot be enforced");
  }
  RETURN_IF_ERROR(CheckTogether(schema, path, has_type || schema.contains("type")));
  if (const auto pattern = schema.find("pattern");
      pattern != schema.end() && pattern->is_string()) {
    RETURN_IF_ERROR(CheckPattern(pattern->get<std::string>(), path));
  }
  if (const auto names = schema.find("propertyNames"); names != schema.end()) {
    RETURN_IF_ERROR(CheckSchema(*names, path + "/propertyNames", /*has_type=*/true));
  }
  for (const char* keyword : kOneSchema) {
    const auto found = schema.find(keyword);
    if (found != schema.end()) RETURN_IF_ERROR(CheckSchema(*found, path + "/" + keyword));
  }
  for (const char* keyword : kListOfSchemas) {
    const auto found = schema.find(keyword);
    if (found == schema.end() || !found->is_array()) continue;
    for (const Json& item : *found) RETURN_IF_ERROR(CheckSchema(item, path + "/" + keyword));
  }
  for (const char* keyword : kSchemasByName) {
    const auto found = schema.find(keyword);
    if (found == schema.end() || !found->is_object()) continue;
    for (const auto& [name, value] : found->items()) {
      if (keyword == std::string_view("patternProperties")) {
        RETURN_IF_ERROR(CheckPattern(name, path + "/" + keyword));
      }
      RETURN_IF_ERROR(CheckSchema(value, path + "/" + keyword + "/" + name));
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckJsonSchema(const std::string& schema_text) {
  const Json schema = Json::parse(schema_text, nullptr, /*allow_exceptions=*/false);
  if (schema.is_discarded()) return InvalidArgumentError("the JSON schema is not JSON");
  if (!schema.is_object() && !schema.is_boolean()) {
    return InvalidArgumentError("the JSON schema must be an object or a boolean");
  }
  return CheckSchema(schema, "");
}

}  // namespace tandem
