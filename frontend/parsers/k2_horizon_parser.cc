// K2 Horizon:
//   <ifm|tool_calls>(<ifm|tool_call>N(<ifm|arg_key>K</ifm|arg_key>
//   <ifm|arg_type>T</ifm|arg_type><ifm|arg_value>V</ifm|arg_value>)*</ifm|tool_call>)*
//   </ifm|tool_calls>
// with types or without, or {"name": N, "arguments": A} in the place of N and its arguments. The
// schema decides which JSON a value is; where it leaves a choice, or there is none, the type does.
// All calls of a group are whole and of known tools, or the group is content.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/strings.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

struct HorizonCall {
  std::string name;
  Json arguments = Json::object();
};

// `<WORD>` or `</WORD>` as this format writes them.
std::string Tag(std::string_view word) { return "<ifm|" + std::string(word) + ">"; }
std::string EndTag(std::string_view word) { return "</ifm|" + std::string(word) + ">"; }

// Blanks, then the tags of `word` around a text; *rest is moved past them. nullopt: others follow.
std::optional<std::string_view> TakeTagged(std::string_view* rest, std::string_view word) {
  std::string_view text = *rest;
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const std::string begin = Tag(word), end = EndTag(word);
  if (!text.starts_with(begin)) return std::nullopt;
  text.remove_prefix(begin.size());
  const size_t length = text.find(end);
  if (length == std::string_view::npos) return std::nullopt;
  *rest = text.substr(length + end.size());
  return text.substr(0, length);
}

Json Parsed(std::string_view json) {
  return Json::parse(json, nullptr, /*allow_exceptions=*/false);
}

Json TypedValue(const Json* schema, std::string_view type, std::string_view text) {
  type = StripAscii(type.substr(0, type.find('[')));
  const Json own = type.empty() || type == "any" ? Json() : Json{{"type", ToLower(type)}};
  if (schema == nullptr || !schema->is_object()) {
    return own.is_null() ? Json(text) : Parsed(ToolSet::JsonBySchema(&own, text));
  }
  const bool leaves_choice =
      !own.is_null() && ToolSet::NumTypes(*schema) > 1 && ToolSet::HasType(*schema, ToLower(type));
  return Parsed(ToolSet::JsonBySchema(leaves_choice ? &own : schema, text));
}

std::optional<HorizonCall> CallOfTags(const ToolSet& tools, std::string_view body) {
  const size_t first = body.find(Tag("arg_key"));
  HorizonCall call;
  call.name = StripAscii(body.substr(0, first));
  if (first == std::string_view::npos) return call;
  body.remove_prefix(first);
  while (!StripAscii(body).empty()) {
    const auto key = TakeTagged(&body, "arg_key");
    if (!key) return std::nullopt;
    const std::string name(StripAscii(*key));
    const auto type = TakeTagged(&body, "arg_type");
    const auto value = TakeTagged(&body, "arg_value");
    if (!value || name.empty() || call.arguments.contains(name)) return std::nullopt;
    call.arguments[name] =
        TypedValue(tools.SchemaOf(call.name, name), type.value_or(std::string_view()), *value);
  }
  return call;
}

std::optional<HorizonCall> CallOfJson(const ToolSet& tools, std::string_view body) {
  const Json object = Parsed(body);
  if (!object.is_object() || !object.contains("name") || !object["name"].is_string()) {
    return std::nullopt;
  }
  HorizonCall call;
  call.name = object["name"].get<std::string>();
  const Json arguments = object.value("arguments", Json::object());
  if (!arguments.is_object()) return std::nullopt;
  for (const auto& [key, value] : arguments.items()) {
    const Json* const schema = tools.SchemaOf(call.name, key);
    const std::string text = value.is_string()
                                 ? value.get<std::string>()
                                 : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    call.arguments[key] = schema == nullptr || !schema->is_object()
                              ? value
                              : Parsed(ToolSet::JsonBySchema(schema, text));
  }
  return call;
}

// The calls of a group's text; empty: it is none.
std::vector<HorizonCall> CallsOf(const ToolSet& tools, std::string_view group) {
  std::vector<HorizonCall> calls;
  while (!StripAscii(group).empty()) {
    const auto body = TakeTagged(&group, "tool_call");
    if (!body) return {};
    auto call =
        StripAscii(*body).starts_with("{") ? CallOfJson(tools, *body) : CallOfTags(tools, *body);
    if (!call || !tools.Has(call->name)) return {};
    calls.push_back(std::move(*call));
  }
  return calls;
}

}  // namespace

Parse<> ParseK2Horizon(ToolParserInput in) {
  const std::string begin = Tag("tool_calls"), end = EndTag("tool_calls");
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  for (;;) {
    const int found = co_await CopyUntil(in.text, AnyOf(begin), add_content);
    if (found == kNoMarker) co_return;
    const TextUntil group = co_await TakeUntil(in.text, AnyOf(end));
    const std::vector<HorizonCall> calls =
        group.marker == kNoMarker ? std::vector<HorizonCall>() : CallsOf(in.tools, group.text);
    for (const HorizonCall& call : calls) {
      in.sink.AddCall(call.name,
                      call.arguments.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    if (!calls.empty()) continue;
    in.sink.AddContent(begin + group.text + (group.marker == kNoMarker ? "" : end));
  }
}

}  // namespace tandem
