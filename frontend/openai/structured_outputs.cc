#include "frontend/openai/structured_outputs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/shorten.h"
#include "frontend/openai/generation_request.h"
#include "grammar/schema/json_schema_check.h"
#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

using wire::StructuredOutputs;

// ---- One part of a constraint ----

// The message follows the name of the part.
Status WrongType(std::string_view part, std::string_view must_be, const Json& value) {
  return InvalidArgumentError(std::string(part) + " must be " + std::string(must_be) + ", got " +
                              std::string(JsonTypeName(value)));
}

int DepthOf(const Json& value) {
  int deepest = 0;
  if (value.is_structured()) {
    for (const Json& item : value) deepest = std::max(deepest, DepthOf(item));
  }
  return value.is_structured() ? deepest + 1 : 0;
}

// Whether it asks for what can be enforced.
Status CheckSchema(std::string_view field, const Json& schema) {
  Status status = CheckJsonSchema(schema);
  return status.ok() ? status : std::move(status).WithParam(std::string(field));
}

// A schema is sent as text, which keeps the order of its keys and the spelling of its numbers.
Status ReadSchema(std::string_view field, std::string_view part, const Json& value,
                  wire::RawValue* out) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto json = ParseJson(text, {.max_depth = kMaxSchemaDepth});
    if (!json.ok()) {
      return InvalidArgumentError("Invalid JSON grammar specification: " + std::string(part) +
                                  " is a text that is not JSON: " + json.status().message())
          .WithParam(std::string(field));
    }
    RETURN_IF_ERROR(CheckSchema(field, **json));
    *out = wire::PackedString(text);
    return OkStatus();
  }
  if (!value.is_object()) return WrongType(part, "an object or a string", value);
  if (DepthOf(value) > kMaxSchemaDepth) {
    return InvalidArgumentError(std::string(part) + " is nested deeper than " +
                                std::to_string(kMaxSchemaDepth) + " levels")
        .WithParam(std::string(field));
  }
  RETURN_IF_ERROR(CheckSchema(field, value));
  *out = wire::PackedString(DumpJson(value));
  return OkStatus();
}

Status ReadText(std::string_view part, const Json& value, std::optional<std::string>* out) {
  if (!value.is_string()) return WrongType(part, "a string", value);
  *out = value.get<std::string>();
  return OkStatus();
}

Status ReadBool(std::string_view part, const Json& value, bool* out) {
  if (!value.is_boolean()) return WrongType(part, "a boolean", value);
  *out = value.get<bool>();
  return OkStatus();
}

Status ReadChoice(std::string_view part, const Json& value,
                  std::optional<std::vector<std::string>>* out) {
  const bool is_list_of_texts =
      value.is_array() &&
      std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_string(); });
  if (!is_list_of_texts) return WrongType(part, "a list of strings", value);
  *out = value.get<std::vector<std::string>>();
  return OkStatus();
}

Status ReadStructuralTag(std::string_view field, const Json& value,
                         std::optional<std::string>* out) {
  std::optional<std::string> text;
  RETURN_IF_ERROR(ReadText("structural_tag", value, &text));
  const auto json = ParseJson(*text, {.max_depth = kMaxSchemaDepth});
  if (!json.ok() || !(*json)->is_object()) {
    return InvalidArgumentError("Invalid structured_outputs structural_tag specification.")
        .WithParam(std::string(field));
  }
  Status schemas = CheckSchemasOfTag(**json);
  if (!schemas.ok()) return std::move(schemas).WithParam(std::string(field));
  *out = std::move(text);
  return OkStatus();
}

// ---- Constraints of several fields ----

// As Python prints it, which is how vLLM shows a constraint in messages.
std::string PythonRepr(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
    const char quote = single ? '\'' : '"';
    std::string repr(1, quote);
    for (const char c : text) {
      if (c == '\n') {
        repr += "\\n";
      } else {
        if (c == quote || c == '\\') repr += '\\';
        repr += c;
      }
    }
    return repr + quote;
  }
  if (!value.is_structured()) return DumpJson(value);
  std::string items;
  for (auto it = value.begin(); it != value.end(); ++it) {
    if (!items.empty()) items += ", ";
    if (value.is_object()) items += PythonRepr(Json(it.key())) + ": ";
    items += PythonRepr(*it);
  }
  return value.is_object() ? "{" + items + "}" : "[" + items + "]";
}

// The schema; null where there is none.
Json SchemaOf(const StructuredOutputs& outputs) {
  if (outputs.json.is_nil()) return nullptr;
  const auto& packed = outputs.json.packed;
  Json schema = Json::from_msgpack(packed.begin(), packed.end(), true, false);
  return schema.is_string() ? Json::parse(schema.get<std::string>(), nullptr, false) : schema;
}

Json ToJson(const StructuredOutputs& outputs) {
  const auto optional = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json json;
  json["json"] = SchemaOf(outputs);
  json["regex"] = optional(outputs.regex);
  json["choice"] = optional(outputs.choice);
  json["grammar"] = optional(outputs.grammar);
  json["json_object"] = optional(outputs.json_object);
  json["disable_any_whitespace"] = outputs.disable_any_whitespace;
  json["disable_additional_properties"] = outputs.disable_additional_properties;
  json["whitespace_pattern"] = optional(outputs.whitespace_pattern);
  json["structural_tag"] = optional(outputs.structural_tag);
  json["_backend"] = Json();
  json["_backend_was_auto"] = false;
  return json;
}

Status WrongCount(std::string_view what, const StructuredOutputs& outputs) {
  constexpr size_t kMaxShownBytes = 1000;
  std::string shown = PythonRepr(ToJson(outputs));
  if (shown.size() > kMaxShownBytes)
    shown = "a value of " + std::to_string(shown.size()) + " bytes";
  return InvalidArgumentError(std::string(what) + ": " + shown);
}

Status SeveralConstraints(const StructuredOutputs& outputs) {
  return WrongCount(
      "You can only use one kind of structured outputs constraint but multiple are specified",
      outputs);
}

int CountOf(const StructuredOutputs& outputs) {
  return int{!outputs.json.is_nil()} + int{outputs.regex.has_value()} +
         int{outputs.choice.has_value()} + int{outputs.grammar.has_value()} +
         int{outputs.json_object.has_value()} + int{outputs.structural_tag.has_value()};
}

Status CheckNotEmpty(const StructuredOutputs& outputs) {
  if (outputs.choice && outputs.choice->empty()) {
    return InvalidArgumentError("Choice '[]' cannot be an empty list");
  }
  constexpr std::string_view kBlanks = " \t\r\n";
  if (outputs.grammar && outputs.grammar->find_first_not_of(kBlanks) == std::string::npos) {
    return InvalidArgumentError("structured_outputs.grammar cannot be an empty string");
  }
  if (outputs.json_object && !*outputs.json_object) {
    return InvalidArgumentError("structured_outputs.json_object must be true, or absent");
  }
  return OkStatus();
}

// Adds what `from` sets to `to`. One kind of constraint in both stays as it is in `to`.
void Merge(const StructuredOutputs& from, StructuredOutputs* to) {
  const auto take = [](const auto& source, auto* target) {
    if (source && !*target) *target = source;
  };
  if (to->json.is_nil()) to->json = from.json;
  take(from.regex, &to->regex);
  take(from.choice, &to->choice);
  take(from.grammar, &to->grammar);
  take(from.json_object, &to->json_object);
  take(from.whitespace_pattern, &to->whitespace_pattern);
  take(from.structural_tag, &to->structural_tag);
  to->disable_any_whitespace |= from.disable_any_whitespace;
  to->disable_additional_properties |= from.disable_additional_properties;
}

StructuredOutputs& Guided(GenerationRequest* out) {
  return out->guided ? *out->guided : out->guided.emplace();
}

// ---- response_format ----

constexpr std::string_view kResponseFormat = "response_format";

Status BadStructuralTag() {
  return InvalidArgumentError("Invalid response_format structural_tag specification.")
      .WithParam(std::string(kResponseFormat));
}

// {json_schema: {name, schema, strict, description}}, of which the schema counts.
Status ReadJsonSchema(const Json& format, StructuredOutputs* out) {
  const auto json_schema = format.find("json_schema");
  if (json_schema == format.end() || json_schema->is_null()) {
    return InvalidArgumentError(
               "When response_format type is 'json_schema', the 'json_schema' field must be "
               "provided.")
        .WithParam(std::string(kResponseFormat));
  }
  if (!json_schema->is_object()) return WrongType("json_schema", "an object", *json_schema);
  const auto schema = json_schema->find("schema");
  if (schema == json_schema->end() || !schema->is_object()) {
    return InvalidArgumentError("json_schema.schema is required, an object");
  }
  return ReadSchema(kResponseFormat, "json_schema.schema", *schema, &out->json);
}

// {format}, or the older {structures, triggers}. What is inside, the engine checks.
Status ReadTagFormat(const Json& format, StructuredOutputs* out) {
  Json tag = {{"type", "structural_tag"}};
  if (const auto inner = format.find("format"); inner != format.end()) {
    const bool has_type =
        inner->is_object() && inner->contains("type") && (*inner)["type"].is_string();
    if (!has_type) return BadStructuralTag();
    tag["format"] = *inner;
  } else {
    for (const char* part : {"structures", "triggers"}) {
      const auto list = format.find(part);
      if (list == format.end() || !list->is_array()) return BadStructuralTag();
      tag[part] = *list;
    }
  }
  if (DepthOf(tag) > kMaxSchemaDepth) {
    return InvalidArgumentError("response_format is nested deeper than " +
                                std::to_string(kMaxSchemaDepth) + " levels")
        .WithParam(std::string(kResponseFormat));
  }
  Status schemas = CheckSchemasOfTag(tag);
  if (!schemas.ok()) return std::move(schemas).WithParam(std::string(kResponseFormat));
  out->structural_tag = DumpJson(tag);
  return OkStatus();
}

}  // namespace

Status ParseResponseFormat(Json& value, GenerationRequest* out) {
  if (!value.is_object()) {
    return InvalidArgumentError("must be an object, got " + std::string(JsonTypeName(value)));
  }
  const auto type = value.find("type");
  if (type == value.end() || !type->is_string()) {
    return InvalidArgumentError("must be an object with a type");
  }
  if (*type == "text") return OkStatus();
  StructuredOutputs outputs;
  if (*type == "json_object") {
    outputs.json_object = true;
  } else if (*type == "json_schema") {
    RETURN_IF_ERROR(ReadJsonSchema(value, &outputs));
  } else if (*type == "structural_tag") {
    RETURN_IF_ERROR(ReadTagFormat(value, &outputs));
  } else {
    return InvalidArgumentError("must be 'text', 'json_object', 'json_schema' or 'structural_tag'")
        .WithParam("body.response_format.type");
  }
  out->response_format = std::move(outputs);
  return OkStatus();
}

Status ParseStructuredOutputs(Json& value, GenerationRequest* out) {
  if (!value.is_object()) {
    return InvalidArgumentError("must be an object, got " + std::string(JsonTypeName(value)));
  }
  constexpr std::string_view kField = "structured_outputs";
  StructuredOutputs outputs;
  for (const auto& [part, item] : value.items()) {
    // Clients that send a whole dataclass send vLLM's own keys too.
    if (item.is_null() || part == "_backend" || part == "_backend_was_auto") continue;
    Status status;
    if (part == "json") {
      status = ReadSchema(kField, part, item, &outputs.json);
    } else if (part == "regex") {
      status = ReadText(part, item, &outputs.regex);
    } else if (part == "choice") {
      status = ReadChoice(part, item, &outputs.choice);
    } else if (part == "grammar") {
      status = ReadText(part, item, &outputs.grammar);
    } else if (part == "json_object") {
      status = ReadBool(part, item, &outputs.json_object.emplace());
    } else if (part == "disable_any_whitespace") {
      status = ReadBool(part, item, &outputs.disable_any_whitespace);
    } else if (part == "disable_additional_properties") {
      status = ReadBool(part, item, &outputs.disable_additional_properties);
    } else if (part == "whitespace_pattern") {
      status = ReadText(part, item, &outputs.whitespace_pattern);
    } else if (part == "structural_tag") {
      status = ReadStructuralTag(kField, item, &outputs.structural_tag);
    } else {
      status = InvalidArgumentError("has a key that is not known: " + DumpJson(Shorten(part)));
    }
    RETURN_IF_ERROR(status);
  }
  out->structured_outputs = std::move(outputs);
  return OkStatus();
}

Status ParseGuidedJson(Json& value, GenerationRequest* out) {
  return ReadSchema("guided_json", "guided_json", value, &Guided(out).json);
}
Status ParseGuidedRegex(Json& value, GenerationRequest* out) {
  return ReadText("guided_regex", value, &Guided(out).regex);
}
Status ParseGuidedChoice(Json& value, GenerationRequest* out) {
  return ReadChoice("guided_choice", value, &Guided(out).choice);
}
Status ParseGuidedGrammar(Json& value, GenerationRequest* out) {
  return ReadText("guided_grammar", value, &Guided(out).grammar);
}
Status ParseGuidedJsonObject(Json& value, GenerationRequest* out) {
  return ReadBool("guided_json_object", value, &Guided(out).json_object.emplace());
}
Status ParseGuidedWhitespacePattern(Json& value, GenerationRequest* out) {
  return ReadText("guided_whitespace_pattern", value, &Guided(out).whitespace_pattern);
}

Status CheckStructuredOutputs(const GenerationRequest& request) {
  if (!request.structured_outputs) return OkStatus();
  const StructuredOutputs& outputs = *request.structured_outputs;
  const int num_first_kinds = int{!outputs.json.is_nil()} + int{outputs.regex.has_value()} +
                              int{outputs.choice.has_value()};
  if (num_first_kinds > 1) {
    return InvalidArgumentError(
        "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
        "'choice').");
  }
  const int count = CountOf(outputs);
  if (count > 1) return SeveralConstraints(outputs);
  if (count == 1) return OkStatus();
  return WrongCount("You must use one kind of structured outputs constraint but none are specified",
                    outputs);
}

StatusOr<wire::Rare<StructuredOutputs>> StructuredOutputsOf(const GenerationRequest& request) {
  StructuredOutputs outputs;
  int count = 0;
  for (const auto* field :
       {&request.structured_outputs, &request.response_format, &request.guided}) {
    if (!*field) continue;
    count += CountOf(**field);
    Merge(**field, &outputs);
  }
  if (count > 1) {
    if (CountOf(outputs) > 1) return SeveralConstraints(outputs);
    return InvalidArgumentError("two fields give the same kind of structured outputs constraint");
  }
  if (count == 0) {
    if (outputs == StructuredOutputs()) return wire::Rare<StructuredOutputs>();
    return InvalidArgumentError(
               "guided_whitespace_pattern needs guided_json, or another field that asks for JSON")
        .WithParam("guided_whitespace_pattern");
  }
  RETURN_IF_ERROR(CheckNotEmpty(outputs));
  outputs.backend = "xgrammar";
  return wire::Rare<StructuredOutputs>(std::move(outputs));
}

std::string_view ConstraintField(const GenerationRequest& request) {
  if (request.response_format) return kResponseFormat;
  if (request.structured_outputs) return "structured_outputs";
  if (!request.guided) return "";
  const StructuredOutputs& guided = *request.guided;
  if (!guided.json.is_nil()) return "guided_json";
  if (guided.regex) return "guided_regex";
  if (guided.choice) return "guided_choice";
  return guided.grammar ? "guided_grammar" : "guided_json_object";
}

Json ConstraintJson(const StructuredOutputs& outputs) {
  if (!outputs.json.is_nil()) return {{"json", SchemaOf(outputs)}};
  if (outputs.regex) return {{"regex", *outputs.regex}};
  if (outputs.choice) return {{"choice", *outputs.choice}};
  if (outputs.grammar) return {{"grammar", *outputs.grammar}};
  if (outputs.structural_tag) {
    return {{"structural_tag", Json::parse(*outputs.structural_tag, nullptr, false)}};
  }
  return {{"json_object", true}};
}

Status SetConstraint(const Json& constraint, StructuredOutputs* outputs) {
  // A tag has some levels of its own around a tool's schema.
  constexpr int kMaxTagDepth = 32;
  if (DepthOf(constraint) > kMaxSchemaDepth + kMaxTagDepth) {
    return InvalidArgumentError("the tools' parameters are nested deeper than " +
                                std::to_string(kMaxSchemaDepth) + " levels")
        .WithParam("tools");
  }
  outputs->json = {};
  outputs->regex.reset();
  outputs->choice.reset();
  outputs->grammar.reset();
  outputs->json_object.reset();
  outputs->structural_tag.reset();
  const auto part = constraint.begin();
  if (part.key() == "structural_tag") {
    outputs->structural_tag = DumpJson(*part);
  } else if (part.key() == "json") {
    outputs->json = wire::PackedString(DumpJson(*part));
  } else {
    return InternalError("a constraint of tools is neither a tag nor a schema");
  }
  return OkStatus();
}

}  // namespace tandem
