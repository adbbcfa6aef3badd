#include "frontend/parsers/tool_grammar.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "grammar/schema/json_references.h"
#include "grammar/schema/json_schema_check.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using Choice = MessageFormat::Choice;

const Json* Find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

// Tools that may be called, as tags see them.
std::vector<TaggedTool> CallableTools(const ToolGrammarInput& in, StrictLevel level) {
  std::vector<TaggedTool> callable;
  for (const Json& tool : *in.tools) {
    const Json& function = tool.at("function");
    const auto& name = function.at("name").get_ref<const std::string&>();
    if (in.choice == Choice::kNamed && name != in.named_tool) continue;
    const Json* const strict = Find(function, "strict");
    callable.push_back(
        {name, Find(function, "parameters"),
         level == StrictLevel::kParameter || (strict != nullptr && *strict == true)});
    if (in.choice == Choice::kNamed) break;
  }
  return callable;
}

std::string ParametersField(const Json& tools, const Json* parameters) {
  size_t i = 0;
  while (Find(tools[i].at("function"), "parameters") != parameters) ++i;
  return "tools[" + std::to_string(i) + "].function.parameters";
}

// Schemas that calls are held to. INVALID_ARGUMENT: one cannot be enforced.
Status CheckParameters(const ToolGrammarInput& in, std::span<const TaggedTool> tools) {
  const ToolTags* const tags = in.parser->tags;
  const bool as_json =
      tags == nullptr && in.choice != Choice::kAuto && in.parser->forced != ForcedCall::kNative;
  if (!as_json && (tags == nullptr || !tags->arguments_grammar.empty())) return OkStatus();
  for (const TaggedTool& tool : tools) {
    if (tool.parameters == nullptr || !(as_json || tool.follows_schema)) continue;
    const Status status = CheckJsonSchema(*tool.parameters);
    if (status.ok()) continue;
    return InvalidSchemaOf(tool.name, status.message())
        .WithParam(ParametersField(*in.tools, tool.parameters));
  }
  return OkStatus();
}

Json StructuralTag(Json format) {
  const Json tag = {{"type", "structural_tag"}, {"format", std::move(format)}};
  return {{"structural_tag", tag}};
}

// ---- The request's own constraint in a tag ----

Json OldTagsFormat(const Json& tag) {
  Json tags = Json::array();
  for (const Json& structure : tag.at("structures")) {
    tags.push_back(TagFormat(structure.at("begin").get<std::string>(),
                             SchemaFormat(structure.at("schema")), structure.at("end")));
  }
  return {{"type", "triggered_tags"},  {"triggers", tag.at("triggers")},
          {"tags", std::move(tags)},   {"at_least_one", false},
          {"stop_after_first", false}, {"excludes", Json::array()}};
}

Json OwnFormat(const Json& own) {
  if (const Json* schema = Find(own, "json")) {
    return SchemaFormat(
        schema->is_string() ? Json::parse(schema->get<std::string>(), nullptr, false) : *schema);
  }
  if (const Json* pattern = Find(own, "regex")) return {{"type", "regex"}, {"pattern", *pattern}};
  if (const Json* grammar = Find(own, "grammar")) {
    return {{"type", "grammar"}, {"grammar", *grammar}};
  }
  if (const Json* choices = Find(own, "choice")) {
    Json constants = Json::array();
    for (const Json& choice : *choices)
      constants.push_back(ConstantFormat(choice.get<std::string>()));
    return EitherFormat(std::move(constants));
  }
  if (const Json* tag = Find(own, "structural_tag")) {
    const Json whole =
        tag->is_string() ? Json::parse(tag->get<std::string>(), nullptr, false) : *tag;
    if (const Json* format = Find(whole, "format")) return *format;
    return OldTagsFormat(whole);
  }
  return SchemaFormat({{"type", "object"}});
}

// gpt-oss writes its content inside a message.
Json OwnConstraint(const ToolGrammarInput& in) {
  if (!in.is_harmony || in.own.is_null()) return in.own;
  return StructuralTag(HarmonyAnswerTag(OwnFormat(in.own)));
}

// ---- Calls as JSON, without tags ----

// Definitions are looked up from a schema's top, so those of tools go there: each by itself, or,
// where other places are referred to or other tools define a name otherwise, within the whole.
void HoistDefinitions(size_t index, Json* parameters, Json* definitions) {
  if (!parameters->is_object()) return;
  const Json own = parameters->value("$defs", Json::object());
  bool is_apart = !RefersOnlyTo("#/$defs/", "#/$defs/", *parameters);
  for (const auto& [name, body] : own.items()) {
    const Json* const earlier = Find(*definitions, name);
    is_apart |= earlier != nullptr && *earlier != body;
  }
  if (!is_apart) {
    definitions->update(own);
    parameters->erase("$defs");
    return;
  }
  std::string name = "parameters_" + std::to_string(index);
  while (definitions->contains(name)) name += '_';
  const std::string place = "#/$defs/" + name;
  MoveReferences(place, parameters);
  (*definitions)[name] = std::exchange(*parameters, Json{{"$ref", place}});
}

// A list of {"name": N, arguments_key: A}. has_type: as vLLM's list for mistral.
Json CallListSchema(std::span<const TaggedTool> tools, const char* arguments_key) {
  const bool has_type = std::string_view(arguments_key) == "arguments";
  Json alternatives = Json::array();
  Json definitions = Json::object();
  for (const TaggedTool& tool : tools) {
    Json parameters = tool.parameters != nullptr
                          ? *tool.parameters
                          : Json{{"type", "object"}, {"properties", Json::object()}};
    HoistDefinitions(alternatives.size(), &parameters, &definitions);
    Json call = Json::object();
    if (has_type) call["type"] = "object";
    call["properties"] = {{"name", {{"type", "string"}, {"enum", Json::array({tool.name})}}},
                          {arguments_key, std::move(parameters)}};
    call["required"] = Json::array({"name", arguments_key});
    alternatives.push_back(std::move(call));
  }
  Json schema = {{"type", "array"},
                 {"minItems", 1},
                 {"items", {{"type", "object"}, {"anyOf", std::move(alternatives)}}}};
  if (!definitions.empty()) schema["$defs"] = std::move(definitions);
  return schema;
}

Json ForcedJson(const ToolGrammarInput& in, std::span<const TaggedTool> tools) {
  const bool named = in.choice == Choice::kNamed;
  const bool own_list = in.parser->forced == ForcedCall::kNativeList;
  if (named && !own_list) {
    return Json{{"json", tools.front().parameters != nullptr ? *tools.front().parameters
                                                             : Json{{"type", "object"}}}};
  }
  Json schema = CallListSchema(tools, own_list ? "arguments" : "parameters");
  if (named || !in.parallel_calls) schema["maxItems"] = 1;
  return Json{{"json", std::move(schema)}};
}

// ---- By tool_choice ----

ToolGrammar Forced(const ToolGrammarInput& in, std::span<const TaggedTool> tools) {
  constexpr std::string_view kChoiceWins =
      "response_format has no effect in a request whose tool_choice asks for a call";
  ToolGrammar grammar;
  const ToolTags* const tags = in.parser->tags;
  if (tags != nullptr && in.choice == Choice::kNamed) {
    grammar.structured_outputs = StructuralTag(NamedTag(*tags, tools.front()));
  } else if (tags != nullptr) {
    grammar.structured_outputs = StructuralTag(RequiredTag(*tags, tools, !in.parallel_calls));
  } else if (in.parser->forced == ForcedCall::kNative) {
    return {.structured_outputs = OwnConstraint(in)};
  } else {
    grammar.structured_outputs = ForcedJson(in, tools);
  }
  if (!in.own.is_null()) grammar.warning = kChoiceWins;
  return grammar;
}

ToolGrammar Auto(const ToolGrammarInput& in, std::span<const TaggedTool> tools, bool tagged) {
  constexpr std::string_view kFormatWins =
      "tools cannot be called in a request with response_format whose tools are not strict";
  const ToolTags* const tags = in.parser->tags;
  if (!tagged || tags == nullptr) {
    return {.structured_outputs = OwnConstraint(in),
            .warning = in.own.is_null() ? std::string_view() : kFormatWins};
  }
  if (in.own.is_null()) {
    return {.structured_outputs = StructuralTag(AutoTag(*tags, tools, !in.parallel_calls)),
            .allows_text = true};
  }
  Json own = OwnFormat(in.own);
  if (in.is_harmony) own = HarmonyAnswerTag(own);
  return {.structured_outputs = StructuralTag(EitherFormat(
              Json::array({RequiredTag(*tags, tools, !in.parallel_calls), std::move(own)})))};
}

}  // namespace

Status InvalidSchemaOf(std::string_view function, std::string_view reason) {
  return InvalidArgumentError("Invalid schema for function '" + std::string(function) +
                              "': " + std::string(reason));
}

StatusOr<ToolGrammar> MakeToolGrammar(const ToolGrammarInput& in) {
  if (in.choice == Choice::kNone || in.parser == nullptr || in.tools == nullptr) {
    return ToolGrammar{.structured_outputs = OwnConstraint(in)};
  }
  StrictLevel level = in.strict_level;
  if (in.parser->tags != nullptr) level = std::max(level, in.parser->tags->level);
  if (!in.parallel_calls && in.own.is_null()) level = std::max(level, StrictLevel::kFunction);
  const std::vector<TaggedTool> tools = CallableTools(in, level);
  RETURN_IF_ERROR(CheckParameters(in, tools));
  if (in.choice != Choice::kAuto) return Forced(in, tools);
  const bool tagged =
      level >= StrictLevel::kFunction ||
      std::any_of(tools.begin(), tools.end(), [](const auto& tool) { return tool.follows_schema; });
  return Auto(in, tools, tagged);
}

}  // namespace tandem
