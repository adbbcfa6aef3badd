// MiniMax M3: elements whose tags all stand after one marker, here written %,
//   %<tool_call>(%<invoke name="N">(%<K>V%</K>)*%</invoke>)*%</tool_call>
// A value may have elements in it: an array where the schema says so, else an object, in which a
// name that repeats collects its values. A call is passed on when it is complete, because what
// comes later may change that. What comes after the calls is dropped.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/strings.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMarker = "]<]minimax[>[";
constexpr int kMaxDepth = 128;

struct Element {
  std::string name;
  std::string text;
  std::vector<Element> children;
};

bool TrySkip(std::string_view* rest, std::string_view word) {
  if (!rest->starts_with(word)) return false;
  rest->remove_prefix(word.size());
  return true;
}

// The element at the start of *rest, which is moved past it; nullopt: none that is whole.
std::optional<Element> ReadElement(std::string_view* rest, int depth) {
  if (depth > kMaxDepth || !TrySkip(rest, kMarker) || !TrySkip(rest, "<")) return std::nullopt;
  const size_t name_end = rest->find('>');
  Element element;
  element.name = rest->substr(0, name_end);
  if (name_end == std::string_view::npos || StripAscii(element.name).empty() ||
      element.name.front() == '/') {
    return std::nullopt;
  }
  rest->remove_prefix(name_end + 1);
  const std::string close = std::string(kMarker) + "</" + element.name + ">";
  for (;;) {
    const size_t marker = rest->find(kMarker);
    if (marker == std::string_view::npos) return std::nullopt;
    element.text += rest->substr(0, marker);
    rest->remove_prefix(marker);
    if (TrySkip(rest, close)) return element;
    std::optional<Element> child = ReadElement(rest, depth + 1);
    if (!child) return std::nullopt;
    element.children.push_back(std::move(*child));
  }
}

const Json* Member(const Json* object, std::string_view key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto it = object->find(key);
  return it == object->end() ? nullptr : &*it;
}

// The part of a schema that describes an array or an object, the first of its alternatives.
struct Container {
  const Json* schema = nullptr;
  bool is_array = false;
};

bool HasType(const Json& type, std::string_view name) {
  if (!type.is_array()) return type == name;
  return std::find(type.begin(), type.end(), name) != type.end();
}

Container ContainerOf(const Json* schema, int depth = 0) {
  if (schema == nullptr || !schema->is_object() || depth > kMaxDepth) return {};
  const Json* const type = Member(schema, "type");
  if (type != nullptr) {
    if (HasType(*type, "array")) return {schema, true};
    if (HasType(*type, "object")) return {schema, false};
  } else {
    if (Member(schema, "items") != nullptr) return {schema, true};
    if (Member(schema, "properties") != nullptr ||
        Member(schema, "additionalProperties") != nullptr) {
      return {schema, false};
    }
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const Json* const choices = Member(schema, key);
    if (choices == nullptr || !choices->is_array()) continue;
    for (const Json& choice : *choices) {
      const Container found = ContainerOf(&choice, depth + 1);
      if (found.schema != nullptr) return found;
    }
  }
  return {};
}

Json ValueOf(const Element& element, const Json* schema);

Json ObjectOf(const std::vector<Element>& elements, const Json* properties,
              const Json* additional) {
  Json object = Json::object();
  std::vector<std::string> lists;
  for (const Element& element : elements) {
    const Json* const own = Member(properties, element.name);
    Json value = ValueOf(element, own != nullptr ? own : additional);
    if (!object.contains(element.name)) {
      object[element.name] = std::move(value);
      continue;
    }
    Json& earlier = object[element.name];
    if (std::find(lists.begin(), lists.end(), element.name) == lists.end()) {
      earlier = Json::array({std::move(earlier)});
      lists.push_back(element.name);
    }
    earlier.push_back(std::move(value));
  }
  return object;
}

Json TextValue(std::string_view text, const Json* schema, const Container& container) {
  if (schema == nullptr || !schema->is_object()) return text;
  // An empty list or object is an element without text.
  if (container.schema != nullptr && StripAscii(text).empty() && !ToolSet::AllowsText(*schema)) {
    return container.is_array ? Json::array() : Json::object();
  }
  return Json::parse(ToolSet::JsonBySchema(schema, text), nullptr, /*allow_exceptions=*/false);
}

Json ValueOf(const Element& element, const Json* schema) {
  const Container container = ContainerOf(schema);
  if (element.children.empty()) return TextValue(element.text, schema, container);
  if (container.is_array) {
    Json array = Json::array();
    for (const Element& child : element.children) {
      array.push_back(ValueOf(child, Member(container.schema, "items")));
    }
    return array;
  }
  std::vector<Element> members = element.children;
  if (!StripAscii(element.text).empty()) {
    // Text beside elements has a name that no element has.
    std::string name = "$text";
    const auto is_taken = [&](const Element& each) { return each.name == name; };
    while (std::any_of(members.begin(), members.end(), is_taken)) name.insert(0, "$");
    members.push_back({name, element.text, {}});
  }
  return ObjectOf(members, Member(container.schema, "properties"),
                  Member(container.schema, "additionalProperties"));
}

// The elements of a call up to the first one that is not whole.
std::string ArgumentsOf(const ToolSet& tools, std::string_view tool, std::string_view body) {
  std::vector<Element> elements;
  for (;;) {
    body.remove_prefix(std::min(body.find_first_not_of(" \t\r\n"), body.size()));
    std::optional<Element> element = ReadElement(&body, 1);
    if (!element) break;
    elements.push_back(std::move(*element));
  }
  return ObjectOf(elements, tools.PropertiesOf(tool), nullptr)
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view Unquoted(std::string_view name) {
  name = StripAscii(name);
  if (!name.empty() && (name.front() == '"' || name.front() == '\'')) name.remove_prefix(1);
  if (!name.empty() && (name.back() == '"' || name.back() == '\'')) name.remove_suffix(1);
  return StripAscii(name);
}

}  // namespace

Parse<> ParseMinimaxM3(ToolParserInput in) {
  const std::string marker(kMarker);
  const std::string begin = marker + "<tool_call>", end = marker + "</tool_call>";
  const std::string invoke = marker + "<invoke name=", invoke_end = marker + "</invoke>";
  const TextFunction add_content = [&in](std::string_view part) { in.sink.AddContent(part); };
  const int found = co_await CopyUntil(in.text, AnyOf(begin), add_content);
  if (found == kNoMarker) co_return;
  for (;;) {
    const TextUntil gap = co_await TakeUntil(in.text, AnyOf(invoke, end));
    if (gap.marker != 0) break;
    const TextUntil head = co_await TakeUntil(in.text, AnyOf(">"));
    if (head.marker == kNoMarker) break;
    const std::string name(Unquoted(head.text));
    const TextUntil body = co_await TakeUntil(in.text, AnyOf(invoke_end, end));
    if (!name.empty()) in.sink.AddCall(name, ArgumentsOf(in.tools, name, body.text));
    if (body.marker != 0) break;
  }
  co_await CopyRest(in.text, [](std::string_view) {});
}

}  // namespace tandem
