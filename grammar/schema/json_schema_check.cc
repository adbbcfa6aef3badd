#include "grammar/schema/json_schema_check.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "grammar/schema/json_pattern.h"
#include "grammar/schema/json_references.h"
#include "grammar/schema/schema_fault.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 128;
constexpr size_t kMaxPairs = 1'000'000;  // of a pattern and a name
constexpr int kMaxLookUps = 200;
constexpr const char* kLeftOut[] = {
    "not",         "if",       "dependentRequired", "dependentSchemas", "dependencies",
    "uniqueItems", "contains", "$dynamicRef",       "$recursiveRef"};
// Of several a library takes the first that a schema has, and leaves out what stands beside it.
constexpr const char* kUnions[] = {"anyOf", "oneOf", "allOf"};
constexpr const char* kValues[] = {"const", "enum"};
// Limits that are read together with a type, or with a keyword of the next list.
constexpr const char* kLimits[] = {
    "minLength",  "maxLength",        "pattern",          "minimum",       "maximum",
    "multipleOf", "exclusiveMinimum", "exclusiveMaximum", "minItems",      "maxItems",
    "required",   "propertyNames",    "minProperties",    "maxProperties", "patternProperties"};
constexpr const char* kParts[] = {"properties", "additionalProperties", "unevaluatedProperties",
                                  "items",      "prefixItems",          "unevaluatedItems"};
constexpr const char* kOneSchema[] = {"items", "additionalProperties", "unevaluatedProperties",
                                      "unevaluatedItems", "additionalItems"};
constexpr const char* kListOfSchemas[] = {"prefixItems", "items", "allOf", "anyOf", "oneOf"};
constexpr const char* kSchemasByName[] = {"properties", "patternProperties", "$defs",
                                          "definitions"};

Status Refuse(const std::string& what, const std::string& path, const std::string& why) {
  return InvalidArgumentError("the JSON schema has " + what + " at #" + path + ", " + why);
}

std::string Quoted(const std::string& keyword) { return "\"" + keyword + "\""; }

Status RefuseTogether(const std::string& beside, const std::string& keyword,
                      const std::string& path) {
  return Refuse(Quoted(beside) + " beside " + Quoted(keyword), path,
                "which cannot be enforced together");
}

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
  if (schema.contains("const") && schema.contains("enum")) {
    const Json& listed = schema["enum"];
    if (std::find(listed.begin(), listed.end(), schema["const"]) == listed.end()) {
      return Refuse("a \"const\"", path, "which its \"enum\" excludes");
    }
  }
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
  // Look-ups in the object itself are linear.
  const auto properties = schema.find("properties");
  std::unordered_set<std::string_view> names;
  if (properties != schema.end() && properties->is_object()) {
    for (auto it = properties->begin(); it != properties->end(); ++it) names.insert(it.key());
  }
  for (const Json& name : *required) {
    if (!name.is_string() || names.contains(name.get_ref<const std::string&>())) continue;
    return Refuse("the name " + name.dump() + " in \"required\"", path,
                  "which is none of its \"properties\" and cannot be enforced");
  }
  return OkStatus();
}

// What every name that an expression matches begins with; empty: nothing is known.
std::string_view BeginningOf(std::string_view regex) {
  if (!regex.starts_with('^') || regex.find('|') != regex.npos) return "";
  const std::string_view rest = regex.substr(1);
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  };
  size_t size = 0;
  while (size < rest.size() && is_plain(rest[size])) ++size;
  const bool is_repeated =
      size < rest.size() && std::string_view("*?{").find(rest[size]) != rest.npos;
  return rest.substr(0, is_repeated && size > 0 ? size - 1 : size);
}

// Names of other properties are those of one keyword, and no other keyword is about the same ones:
// the library would let either describe the value.
Status CheckNames(const Json& schema, const std::string& path) {
  const auto own = schema.find("properties");
  const size_t num_own = own == schema.end() ? 0 : own->size();
  if (schema.contains("propertyNames") && num_own > 0) {
    return RefuseTogether("propertyNames", "properties", path);
  }
  if (!schema.contains("patternProperties")) return OkStatus();
  if (schema.contains("propertyNames")) {
    return RefuseTogether("propertyNames", "patternProperties", path);
  }
  const Json& patterns = schema["patternProperties"];
  if (patterns.size() * num_own > kMaxPairs) {
    return RefuseTogether("properties", "patternProperties", path);
  }
  for (const auto& [pattern, value] : patterns.items()) {
    if (num_own == 0) break;
    const std::string_view beginning = BeginningOf(pattern);
    for (const auto& [name, property] : own->items()) {
      if (!beginning.empty() && !name.starts_with(beginning)) continue;
      return Refuse(
          "the property " + Json(name).dump() + " beside the pattern " + Json(pattern).dump(), path,
          "which may match it too and cannot be enforced then");
    }
  }
  for (const char* keyword : {"additionalProperties", "unevaluatedProperties"}) {
    const auto others = schema.find(keyword);
    if (others == schema.end()) continue;
    return *others == false ? OkStatus() : RefuseTogether(keyword, "patternProperties", path);
  }
  return OkStatus();
}

// A name that the schema does not list may come twice, and counts once.
Status CheckCount(const Json& schema, const std::string& path) {
  const auto least = schema.find("minProperties");
  if (least == schema.end() || !least->is_number() || *least < 2) return OkStatus();
  for (const char* keyword :
       {"patternProperties", "propertyNames", "additionalProperties", "unevaluatedProperties"}) {
    const auto others = schema.find(keyword);
    if (others == schema.end() || *others == false) continue;
    return Refuse("\"minProperties\" above 1 beside " + Quoted(keyword), path,
                  "which cannot be enforced together");
  }
  return OkStatus();
}

// What the library takes for any value, and what its message would not name.
Status CheckForm(const Json& schema, const std::string& path) {
  for (const char* keyword : {"anyOf", "oneOf", "allOf", "type"}) {
    const auto found = schema.find(keyword);
    if (found == schema.end() || !found->is_array() || !found->empty()) continue;
    return Refuse("the keyword " + Quoted(keyword), path, "which must not be an empty list");
  }
  for (const char* keyword : {"format", "pattern"}) {
    const auto found = schema.find(keyword);
    if (found == schema.end() || found->is_string()) continue;
    return Refuse("the keyword " + Quoted(keyword), path, "which must be a string");
  }
  const auto required = schema.find("required");
  if (required == schema.end() || !required->is_array()) return OkStatus();
  const bool are_names = std::all_of(required->begin(), required->end(),
                                     [](const Json& name) { return name.is_string(); });
  return are_names ? OkStatus()
                   : Refuse("the keyword \"required\"", path, "which must be a list of strings");
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

// Checks a schema from its top.
class SchemaCheck {
 public:
  explicit SchemaCheck(const Json& root) : root_(root) {}

  // has_type: the place itself decides the type.
  Status Run(const Json& schema, const std::string& path, bool has_type = false) {
    if (!schema.is_object()) return OkStatus();
    if (depth_ == kMaxDepth) {
      return InvalidArgumentError("the JSON schema is nested deeper than " +
                                  std::to_string(kMaxDepth) + " schemas");
    }
    ++depth_;
    Status status = RunHere(schema, path, has_type);
    --depth_;
    return status;
  }

 private:
  Status RunHere(const Json& schema, const std::string& path, bool has_type) {
    for (const char* keyword : kLeftOut) {
      const auto found = schema.find(keyword);
      if (found == schema.end() || *found == false) continue;
      return Refuse("the keyword " + Quoted(keyword), path, "which cannot be enforced");
    }
    RETURN_IF_ERROR(CheckForm(schema, path));
    if (LeadsToItself(schema)) {
      return Refuse("a \"$ref\"", path, "which leads to itself and describes nothing");
    }
    RETURN_IF_ERROR(CheckTogether(schema, path, has_type || schema.contains("type")));
    if (const auto pattern = schema.find("pattern");
        pattern != schema.end() && pattern->is_string()) {
      RETURN_IF_ERROR(CheckPattern(pattern->get<std::string>(), path));
    }
    return RunOnParts(schema, path);
  }

  // By references alone.
  bool LeadsToItself(const Json& schema) {
    constexpr int kMaxSteps = 16;
    const Json* place = &schema;
    for (int i = 0; i < kMaxSteps && num_look_ups_ < kMaxLookUps; ++i) {
      const auto ref = place->find("$ref");
      if (ref == place->end() || !ref->is_string()) return false;
      ++num_look_ups_;
      place = FindTarget(root_, ref->get<std::string>());
      if (place == nullptr || !place->is_object()) return false;
      if (place == &schema) return true;
    }
    return false;
  }

  // What a keyword means may depend on those beside it.
  Status CheckTogether(const Json& schema, const std::string& path, bool has_type) {
    if (schema.contains("$ref")) return CheckBesideRef(schema, path);
    if (schema.contains("const") || schema.contains("enum")) return CheckValues(schema, path);
    const std::string limit = FirstOf(kLimits, schema), part = FirstOf(kParts, schema);
    if (const std::string keyword = FirstOf(kUnions, schema); !keyword.empty()) {
      const std::string& beside = limit.empty() ? part : limit;
      for (const char* other : kUnions) {
        if (other != keyword && schema.contains(other)) return RefuseTogether(other, keyword, path);
      }
      if (beside.empty() || IsAboutOthers(schema, beside)) return OkStatus();
      return RefuseTogether(beside, keyword, path);
    }
    if (!has_type && part.empty() && !limit.empty()) {
      return Refuse(Quoted(limit) + " without \"type\"", path, "which cannot be enforced");
    }
    RETURN_IF_ERROR(CheckNames(schema, path));
    RETURN_IF_ERROR(CheckCount(schema, path));
    return CheckRequired(schema, path);
  }

  // What stands beside it would be left out. Before draft 2019-09 that is what it means.
  Status CheckBesideRef(const Json& schema, const std::string& path) {
    const auto dialect = root_.find("$schema");
    if (dialect != root_.end() && dialect->is_string() &&
        dialect->get_ref<const std::string&>().find("/draft-0") != std::string::npos) {
      return OkStatus();
    }
    std::string beside = FirstOf(kValues, schema);
    if (beside.empty()) beside = FirstOf(kUnions, schema);
    if (beside.empty()) beside = FirstOf(kLimits, schema);
    if (beside.empty()) beside = FirstOf(kParts, schema);
    if (beside.empty() && schema.contains("type")) {
      const Json& ref = schema["$ref"];
      const bool may_look = ref.is_string() && num_look_ups_++ < kMaxLookUps;
      const Json* target = may_look ? FindTarget(root_, ref.get<std::string>()) : nullptr;
      const bool is_same = target != nullptr && target->is_object() &&
                           target->value("type", Json()) == schema["type"];
      if (!is_same) beside = "type";
    }
    return beside.empty() ? OkStatus() : RefuseTogether(beside, "$ref", path);
  }

  Status RunOnParts(const Json& schema, const std::string& path) {
    if (const auto names = schema.find("propertyNames"); names != schema.end()) {
      RETURN_IF_ERROR(Run(*names, path + "/propertyNames", /*has_type=*/true));
    }
    for (const char* keyword : kOneSchema) {
      const auto found = schema.find(keyword);
      if (found != schema.end()) RETURN_IF_ERROR(Run(*found, path + "/" + keyword));
    }
    for (const char* keyword : kListOfSchemas) {
      const auto found = schema.find(keyword);
      if (found == schema.end() || !found->is_array()) continue;
      for (const Json& item : *found) RETURN_IF_ERROR(Run(item, path + "/" + keyword));
    }
    for (const char* keyword : kSchemasByName) {
      const auto found = schema.find(keyword);
      if (found == schema.end() || !found->is_object()) continue;
      for (const auto& [name, value] : found->items()) {
        if (keyword == std::string_view("patternProperties")) {
          RETURN_IF_ERROR(CheckPattern(name, path + "/" + keyword));
        }
        RETURN_IF_ERROR(Run(value, path + "/" + keyword + "/" + name));
      }
    }
    return OkStatus();
  }

  const Json& root_;
  int depth_ = 0;
  int num_look_ups_ = 0;  // of targets, each linear in the names on its way
};

}  // namespace

Status CheckJsonSchema(const Json& schema) {
  if (schema.is_discarded()) return InvalidArgumentError("the JSON schema is not JSON");
  if (!schema.is_object() && !schema.is_boolean()) {
    return InvalidArgumentError("the JSON schema must be an object or a boolean");
  }
  return SchemaCheck(schema).Run(schema, "");
}

Status CheckSchemasOfTag(const Json& tag) {
  for (const Json* schema : SchemasOfTag(tag)) {
    // What is no schema at all is left to the compiler.
    if (schema->is_object()) RETURN_IF_ERROR(CheckJsonSchema(*schema));
    if (!schema->is_string()) continue;
    const auto& text = schema->get_ref<const std::string&>();
    RETURN_IF_ERROR(CheckJsonSchema(Json::parse(text, nullptr, /*allow_exceptions=*/false)));
  }
  return OkStatus();
}

}  // namespace tandem
