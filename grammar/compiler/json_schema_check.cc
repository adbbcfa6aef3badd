#include "grammar/compiler/json_schema_check.h"

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLeftOut[] = {
    "not", "if", "dependentRequired", "dependentSchemas", "uniqueItems", "contains"};
constexpr const char* kOneSchema[] = {"items", "additionalProperties", "unevaluatedProperties",
                                      "unevaluatedItems", "propertyNames"};
constexpr const char* kListOfSchemas[] = {"prefixItems", "items", "allOf", "anyOf", "oneOf"};
constexpr const char* kSchemasByName[] = {"properties", "patternProperties", "$defs",
                                          "definitions"};

Status CheckSchema(const Json& schema, const std::string& path) {
  if (!schema.is_object()) return OkStatus();
  for (const char* keyword : kLeftOut) {
    const auto found = schema.find(keyword);
    if (found == schema.end() || *found == false) continue;
    return InvalidArgumentError("the JSON schema has the keyword \"" + std::string(keyword) +
                                "\" at #" + path + ", which cannot be enforced");
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
