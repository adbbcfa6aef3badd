#include "frontend/parsers/tool_tags.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/strings.h"
#include "frontend/parsers/tool_set.h"
#include "grammar/schema/json_references.h"
#include "grammar/schema/json_schema_check.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using Forced = ToolTags::Forced;

Json Words(std::string_view separated_by_blanks) {
  Json words = Json::array();
  for (const std::string_view word : Split(separated_by_blanks, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

// Whether a value of this schema may be a text: no type is named, or string is one of them.
bool MayBeText(const Json& schema) {
  if (!schema.is_object()) return true;
  const auto type = schema.find("type");
  if (type == schema.end()) return true;
  if (!type->is_array()) return *type == "string";
  for (const Json& one : *type) {
    if (one == "string") return true;
  }
  return false;
}

// The schema of one parameter where what it refers to is found.
Json SchemaOfParameter(const Json& parameters, Json schema) {
  for (const char* key : {"$defs", "definitions"}) {
    const auto definitions = parameters.find(key);
    if (definitions == parameters.end() || !schema.is_object()) continue;
    if (!schema.contains(key)) schema[key] = *definitions;
  }
  return schema;
}

// The same, but for schemas that cannot be enforced by themselves: of these their type.
Json LooseSchema(const Json& parameters, const Json& schema) {
  Json whole = SchemaOfParameter(parameters, schema);
  const bool is_whole = RefersOnlyTo("#/$defs/", "#/definitions/", whole);
  return is_whole && CheckJsonSchema(whole).ok() ? whole : Json{{"type", schema["type"]}};
}

// Any number of the schema's parameters in any order.
Json LooseArguments(const ToolTags& tags, const Json& parameters, const Json& properties) {
  Json elements = Json::array();
  for (const auto& [name, schema] : properties.items()) {
    Json value = MayBeText(schema) ? TextFormat(Words(tags.value_excludes))
                                   : SchemaFormat(LooseSchema(parameters, schema));
    elements.push_back(SequenceFormat({ConstantFormat("<arg_key>" + name + "</arg_key><arg_value>"),
                                       std::move(value), ConstantFormat("</arg_value>")}));
  }
  return {{"type", "star"}, {"content", EitherFormat(std::move(elements))}};
}

Json Arguments(const ToolTags& tags, const TaggedTool& tool) {
  if (!tags.arguments_grammar.empty()) {
    return {{"type", "grammar"}, {"grammar", tags.arguments_grammar}};
  }
  if (tool.parameters == nullptr) return SchemaFormat(true, tags.style);
  if (tool.follows_schema) return SchemaFormat(*tool.parameters, tags.style);
  if (!tags.value_excludes.empty() && tool.parameters->is_object()) {
    const auto properties = tool.parameters->find("properties");
    if (properties != tool.parameters->end() && properties->is_object() && !properties->empty()) {
      return LooseArguments(tags, *tool.parameters, *properties);
    }
  }
  return SchemaFormat(true, tags.style);
}

struct Surroundings {
  std::string begin;
  std::string end;
};

Json CallTag(const ToolTags& tags, const ToolTags::Call& call, const TaggedTool& tool,
             const Surroundings& around = {}) {
  std::string begin = around.begin + std::string(call.begin);
  begin += tags.name_is_json ? EscapeJson(tool.name) : std::string(tool.name);
  begin += call.middle;
  Json content = Arguments(tags, tool);
  if (!tags.numbered.empty()) {
    content = SequenceFormat({Json{{"type", "regex"}, {"pattern", "\\d+"}},
                              ConstantFormat(tags.numbered), std::move(content)});
  }
  return TagFormat(begin, std::move(content), std::string(call.end) + around.end);
}

Json CallTags(const ToolTags& tags, std::span<const TaggedTool> tools) {
  Json calls = Json::array();
  for (const TaggedTool& tool : tools) {
    calls.push_back(CallTag(tags, tags.call, tool));
    if (!tags.other_call.begin.empty()) calls.push_back(CallTag(tags, tags.other_call, tool));
  }
  return calls;
}

Json CallList(const ToolTags& tags, std::span<const TaggedTool> tools, bool one_call) {
  return {{"type", "tags_with_separator"},
          {"tags", CallTags(tags, tools)},
          {"separator", tags.separator},
          {"at_least_one", true},
          {"stop_after_first", one_call}};
}

Json OuterTag(const ToolTags& tags, std::span<const TaggedTool> tools, bool one_call) {
  return TagFormat(tags.list_begin, CallList(tags, tools, one_call), tags.list_end);
}

Json Triggered(const ToolTags& tags, Json alternatives, bool at_least_one, bool one_call) {
  return {{"type", "triggered_tags"},        {"triggers", Json::array({tags.trigger})},
          {"tags", std::move(alternatives)}, {"at_least_one", at_least_one},
          {"stop_after_first", one_call},    {"excludes", Words(tags.excludes)}};
}

Json WithinList(const ToolTags& tags, Json calls) {
  return SequenceFormat({ConstantFormat(std::string(tags.blanks) + std::string(tags.list_begin)),
                         std::move(calls), ConstantFormat(tags.list_end)});
}

}  // namespace

Json AutoTag(const ToolTags& tags, std::span<const TaggedTool> tools, bool one_call) {
  if (tags.forced == Forced::kHarmony) return HarmonyCallTag(tools, /*allows_answer=*/true);
  Json alternatives = tags.list_begin.empty() ? CallTags(tags, tools)
                                              : Json::array({OuterTag(tags, tools, one_call)});
  return Triggered(tags, std::move(alternatives), /*at_least_one=*/false, one_call);
}

Json RequiredTag(const ToolTags& tags, std::span<const TaggedTool> tools, bool one_call) {
  switch (tags.forced) {
    case Forced::kTags:
      return CallList(tags, tools, one_call);
    case Forced::kTriggered:
      return Triggered(tags, CallTags(tags, tools), /*at_least_one=*/true, one_call);
    case Forced::kOuterTag:
      return OuterTag(tags, tools, one_call);
    case Forced::kSequence:
    case Forced::kSequenceOfList:
      return WithinList(tags, CallList(tags, tools, one_call));
    case Forced::kHarmony:
      break;
  }
  return HarmonyCallTag(tools, /*allows_answer=*/false);
}

Json NamedTag(const ToolTags& tags, const TaggedTool& tool) {
  switch (tags.forced) {
    case Forced::kTags:
      return CallList(tags, {&tool, 1}, /*one_call=*/true);
    case Forced::kTriggered:
      return CallTag(tags, tags.call, tool);
    case Forced::kOuterTag:
      return CallTag(tags, tags.call, tool,
                     {std::string(tags.list_begin), std::string(tags.list_end)});
    case Forced::kSequence:
      return WithinList(tags, CallTag(tags, tags.call, tool));
    case Forced::kSequenceOfList:
      return WithinList(tags, CallList(tags, {&tool, 1}, /*one_call=*/true));
    case Forced::kHarmony:
      break;
  }
  return HarmonyCallTag({&tool, 1}, /*allows_answer=*/false);
}

Json TagFormat(std::string_view begin, Json content, Json end) {
  return {
      {"type", "tag"}, {"begin", begin}, {"content", std::move(content)}, {"end", std::move(end)}};
}

Json SchemaFormat(Json schema, std::string_view style) {
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}, {"style", style},
          {"any_order", false},    {"max_whitespace_cnt", nullptr},    {"excludes", Json::array()}};
}

Json TextFormat(Json excludes) {
  return {{"type", "any_text"},
          {"excludes", std::move(excludes)},
          {"max_tokens", nullptr},
          {"max_chars", nullptr}};
}

Json ConstantFormat(std::string_view value) { return {{"type", "const_string"}, {"value", value}}; }

Json SequenceFormat(Json elements) {
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

Json EitherFormat(Json elements) { return {{"type", "or"}, {"elements", std::move(elements)}}; }

}  // namespace tandem
