#include "frontend/parsers/response_template.h"

#include <algorithm>

#include "common/shorten.h"
#include "common/strings.h"
#include "common/utf8.h"
#include "frontend/parsers/template_keys.h"

namespace tandem {
namespace {

using Json = ResponseTemplate::Json;
using Mark = ResponseTemplate::Mark;
using Field = ResponseTemplate::Field;
using Part = ResponseTemplate::Part;

using template_keys::CheckKeys;
using template_keys::Flag;
using template_keys::IsWordByte;
using template_keys::kMaxWords;
using template_keys::Member;
using template_keys::Wrong;

struct PartName {
  Part part;
  std::string_view name;
};
constexpr PartName kParts[] = {
    {Part::kThinking, "thinking"}, {Part::kContent, "content"}, {Part::kCalls, "tool_calls"}};

StatusOr<Mark> ReadMark(const std::string& place, const Json& object, const std::string& key) {
  const std::string pattern_key = key + "_pattern";
  const Json* const given = Member(object, key.c_str());
  const Json* const pattern = Member(object, pattern_key.c_str());
  Mark mark;
  if (given != nullptr && pattern != nullptr) {
    return Wrong(place, "has both " + key + " and " + pattern_key);
  }
  if (pattern != nullptr) {
    if (!pattern->is_string()) return Wrong(place, pattern_key + " must be a text");
    auto compiled = PartialRegex::Compile(pattern->get_ref<const std::string&>());
    if (!compiled.ok()) return Wrong(place, pattern_key + ": " + compiled.status().message());
    mark.pattern = std::move(*compiled);
    mark.expression = pattern->get<std::string>();
  }
  if (given == nullptr) return mark;
  const Json words = given->is_array() ? *given : Json::array({*given});
  if (words.empty() || words.size() > kMaxWords) {
    return Wrong(place, key + " must have 1 to " + std::to_string(kMaxWords) + " texts");
  }
  for (const Json& word : words) {
    if (!word.is_string() || word.get_ref<const std::string&>().empty()) {
      return Wrong(place, key + " must be a text that is not empty, or a list of such texts");
    }
    mark.words.push_back(word.get<std::string>());
  }
  auto compiled = PartialRegex::OfWords(mark.words);
  if (!compiled.ok()) return Wrong(place, key + ": " + compiled.status().message());
  mark.pattern = std::move(*compiled);
  return mark;
}

// "{a.b}" as a, b; empty: it is no placeholder.
std::vector<std::string_view> PlaceholderPath(std::string_view text) {
  if (text.size() < 3 || text.front() != '{' || text.back() != '}') return {};
  std::vector<std::string_view> path = Split(text.substr(1, text.size() - 2), '.');
  for (const std::string_view name : path) {
    if (name.empty()) return {};
    if (!std::all_of(name.begin(), name.end(), IsWordByte)) return {};
  }
  return path;
}

// Whether a text has a placeholder beside other text, which nothing fills in.
bool HidesPlaceholder(std::string_view text) {
  if (!PlaceholderPath(text).empty()) return false;
  for (size_t begin = text.find('{'); begin != text.npos; begin = text.find('{', begin + 1)) {
    const size_t end = text.find('}', begin);
    if (end == text.npos) return false;
    if (!PlaceholderPath(text.substr(begin, end + 1 - begin)).empty()) return true;
  }
  return false;
}

Status CheckTransform(const std::string& place, const Json& transform) {
  if (transform.is_string() && HidesPlaceholder(transform.get_ref<const std::string&>())) {
    return Wrong(place, "transform mixes a {placeholder} with other text: " +
                            Shorten(transform.get_ref<const std::string&>()));
  }
  if (!transform.is_structured()) return OkStatus();
  for (const Json& part : transform) RETURN_IF_ERROR(CheckTransform(place, part));
  return OkStatus();
}

StatusOr<Field> ReadField(const PartName& part, const Json& object) {
  const std::string place = "fields." + std::string(part.name);
  RETURN_IF_ERROR(
      CheckKeys(place, object,
                {"open", "open_pattern", "close", "close_pattern", "content", "content_args",
                 "repeats", "join", "optional", "transform", "transform_each"}));
  Field field;
  field.part = part.part;
  field.name = part.name;
  ASSIGN_OR_RETURN(field.open, ReadMark(place, object, "open"));
  ASSIGN_OR_RETURN(field.close, ReadMark(place, object, "close"));
  ASSIGN_OR_RETURN(field.reader, FieldReader::Parse(place, Member(object, "content"),
                                                    Member(object, "content_args")));
  ASSIGN_OR_RETURN(field.transforms_each, Flag(place, object, "transform_each", false));
  if (const Json* const transform = Member(object, "transform")) field.transform = *transform;
  RETURN_IF_ERROR(CheckTransform(place, field.transform));
  if (Member(object, "join") != nullptr) return Wrong(place, "join is not supported");
  if (field.transforms_each && field.transform.is_null()) {
    return Wrong(place, "transform_each needs a transform");
  }
  const auto captures = [](const Mark& mark) {
    return mark.pattern && mark.pattern->has_named_groups();
  };
  if (field.transform.is_null() && (captures(field.open) || captures(field.close))) {
    return Wrong(place, "has named groups, which only a transform shows");
  }
  if (part.part == Part::kCalls) return field;
  if (field.reader.form != FieldReader::Form::kText || !field.transform.is_null()) {
    return Wrong(place, "must be text without a transform: it is streamed as it comes");
  }
  return field;
}

// ---- Values ----

using Scope = std::vector<std::pair<std::string_view, const Json*>>;

// The transform with its placeholders filled in; nullopt: one of them is nowhere.
std::optional<Json> Fill(const Json& transform, const Scope& scope) {
  if (transform.is_structured()) {
    Json filled = transform;
    for (Json& part : filled) {
      std::optional<Json> value = Fill(part, scope);
      if (!value) return std::nullopt;
      part = *std::move(value);
    }
    return filled;
  }
  if (!transform.is_string()) return transform;
  const auto path = PlaceholderPath(transform.get_ref<const std::string&>());
  if (path.empty()) return transform;
  const Json* value = nullptr;
  for (const auto& [name, each] : scope) {
    if (name == path[0]) value = each;
  }
  for (size_t i = 1; value != nullptr && i < path.size(); ++i) {
    const auto it = value->is_object() ? value->find(path[i]) : value->end();
    value = !value->is_object() || it == value->end() ? nullptr : &*it;
  }
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<Json> Transformed(const Field& field, Json value, const Scope& groups) {
  if (field.transform.is_null()) return value;
  Scope scope = groups;
  if (!field.transforms_each) {
    scope.emplace_back("content", &value);
    return Fill(field.transform, scope);
  }
  if (!value.is_array()) return std::nullopt;
  Json all = Json::array();
  for (const Json& item : value) {
    if (!item.is_object()) return std::nullopt;
    scope = groups;
    for (const auto& [key, member] : item.items()) scope.emplace_back(key, &member);
    std::optional<Json> one = Fill(field.transform, scope);
    if (!one) return std::nullopt;
    all.push_back(*std::move(one));
  }
  return all;
}

// Texts become what the tool's schema says.
void TypeArguments(const std::string& name, const ToolSet& tools, Json* arguments) {
  const auto type = [&](std::string_view key, Json* value) {
    const std::string json = tools.ToJson(name, key, value->get_ref<const std::string&>());
    *value = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  };
  for (const auto& [key, value] : arguments->items()) {
    const Json* const schema = tools.SchemaOf(name, key);
    if (schema == nullptr || ToolSet::NumTypes(*schema) == 0) continue;
    if (value.is_string()) type(key, &value);
    if (!value.is_array() || ToolSet::HasType(*schema, "array")) continue;
    for (Json& item : value) {
      if (item.is_string()) type(key, &item);
    }
  }
}

std::optional<ResponseTemplate::Call> CallOf(Json* value, const ToolSet& tools) {
  if (!value->is_object() || !value->contains("function")) return std::nullopt;
  Json& function = (*value)["function"];
  if (!function.is_object()) return std::nullopt;
  const auto name = function.find("name");
  const auto arguments = function.find("arguments");
  const bool is_whole = name != function.end() && name->is_string() && *name != "" &&
                        arguments != function.end() && !arguments->is_null();
  if (!is_whole) return std::nullopt;
  ResponseTemplate::Call call{.name = name->get<std::string>(), .arguments = {}};
  if (arguments->is_string()) {
    call.arguments = arguments->get<std::string>();
  } else {
    if (arguments->is_object()) TypeArguments(call.name, tools, &*arguments);
    call.arguments = arguments->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return call;
}

}  // namespace

StatusOr<ResponseTemplate> ResponseTemplate::Parse(const Json& metadata) {
  RETURN_IF_ERROR(CheckKeys(
      "", metadata, {"version", "defaults", "fields", "start_anchor", "start_anchor_pattern"}));
  const Json* const version = Member(metadata, "version");
  if (version != nullptr && *version != 1) return Wrong("version", "must be 1");
  if (const Json* const defaults = Member(metadata, "defaults")) {
    RETURN_IF_ERROR(CheckKeys("defaults", *defaults, {"role"}));
  }
  ResponseTemplate result;
  ASSIGN_OR_RETURN(result.start_, ReadMark("", metadata, "start_anchor"));
  if (!result.start_.pattern) return Wrong("", "must have start_anchor or start_anchor_pattern");
  const Json* const fields = Member(metadata, "fields");
  if (fields == nullptr || !fields->is_object() || fields->empty()) {
    return Wrong("fields", "must be an object that is not empty");
  }
  RETURN_IF_ERROR(CheckKeys("fields", *fields, {"thinking", "content", "tool_calls"}));
  int num_outside = 0;
  for (const PartName& part : kParts) {
    const auto given = fields->find(part.name);
    if (given == fields->end()) continue;
    ASSIGN_OR_RETURN(Field field, ReadField(part, *given));
    num_outside += field.open.pattern ? 0 : 1;
    result.fields_.push_back(std::move(field));
  }
  if (num_outside > 1) return Wrong("fields", "has more than one without open and open_pattern");
  if (num_outside == 0 && result.Find(Part::kContent) == nullptr) {
    Field content;
    content.name = "content";
    result.fields_.push_back(std::move(content));
  }
  // In the order of their names, by which a tie of two marks is decided.
  std::sort(result.fields_.begin(), result.fields_.end(),
            [](const Field& a, const Field& b) { return a.name < b.name; });
  return result;
}

const Field* ResponseTemplate::Find(Part part) const {
  for (const Field& field : fields_) {
    if (field.part == part) return &field;
  }
  return nullptr;
}

const Field* ResponseTemplate::outside() const {
  for (const Field& field : fields_) {
    if (!field.open.pattern) return &field;
  }
  return nullptr;
}

std::string_view ResponseTemplate::MessageIn(std::string_view prompt) const {
  RegexBudget budget;
  size_t begin = 0;
  for (size_t from = 0; from <= prompt.size();) {
    const auto match = start_.pattern->Search(prompt, from, /*ended=*/true, &budget);
    if (match.kind != PartialRegex::Match::Kind::kFound) break;
    begin = from = match.end;
    if (match.end == match.begin) ++from;
    while (from < prompt.size() && IsUtf8Continuation(prompt[from])) ++from;
  }
  return prompt.substr(begin);
}

std::vector<ResponseTemplate::Call> ResponseTemplate::ReadCalls(
    const Field& field, std::string_view text,
    const std::vector<std::pair<std::string, std::string>>& groups, const ToolSet& tools,
    RegexBudget* budget) {
  std::optional<Json> value = field.reader.Read(text, budget);
  if (!value) return {};
  std::vector<Json> texts;
  texts.reserve(groups.size());
  Scope scope;
  for (const auto& [name, group] : groups) {
    texts.emplace_back(group);
    scope.emplace_back(name, &texts.back());
  }
  value = Transformed(field, *std::move(value), scope);
  if (!value) return {};
  Json calls = value->is_array() ? *std::move(value) : Json::array({*std::move(value)});
  std::vector<Call> read;
  for (Json& each : calls) {
    std::optional<Call> call = CallOf(&each, tools);
    if (!call) return {};
    read.push_back(*std::move(call));
  }
  return read;
}

}  // namespace tandem
