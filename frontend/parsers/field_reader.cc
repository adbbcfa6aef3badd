#include "frontend/parsers/field_reader.h"

#include <algorithm>
#include <cmath>

#include "common/shorten.h"
#include "common/strings.h"
#include "common/utf8.h"
#include "frontend/openai/json.h"
#include "frontend/parsers/template_keys.h"
#include "frontend/parsers/tool_set.h"

namespace tandem {
namespace {

using template_keys::CheckKeys;
using template_keys::Flag;
using template_keys::IsWordByte;
using template_keys::kMaxWords;
using template_keys::Member;
using template_keys::Text;
using template_keys::Wrong;

constexpr int kMaxDepth = 16;

struct FormName {
  FieldReader::Form form;
  std::string_view name;
};
constexpr FormName kForms[] = {
    {FieldReader::Form::kText, "text"},          {FieldReader::Form::kInteger, "int"},
    {FieldReader::Form::kFloat, "float"},        {FieldReader::Form::kBoolean, "bool"},
    {FieldReader::Form::kJson, "json"},          {FieldReader::Form::kXmlInline, "xml-inline"},
    {FieldReader::Form::kKeyedLines, "kv-lines"}};

Status SetJsonReader(const std::string& place, const Json& args, FieldReader* reader) {
  ASSIGN_OR_RETURN(reader->has_bare_keys, Flag(place, args, "unquoted_keys", false));
  ASSIGN_OR_RETURN(reader->allows_other_texts, Flag(place, args, "allow_non_json", false));
  const Json* const marks = Member(args, "string_delims");
  if (marks == nullptr) return OkStatus();
  bool is_list = marks->is_array() && marks->size() <= kMaxWords;
  for (size_t i = 0; is_list && i < marks->size(); ++i) {
    const Json& pair = (*marks)[i];
    is_list = pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string() &&
              pair[0] != "" && pair[1] != "";
    if (!is_list) break;
    reader->string_marks.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
  }
  return is_list ? OkStatus() : Wrong(place, "string_delims must be a list of pairs of texts");
}

Status SetMemberReader(const std::string& place, const Json& args, FieldReader* reader) {
  const Json* const pattern = Member(args, "tag_pattern");
  if (pattern == nullptr || !pattern->is_string()) {
    return Wrong(place, "xml-inline needs a tag_pattern");
  }
  auto compiled = PartialRegex::Compile(pattern->get_ref<const std::string&>());
  if (!compiled.ok()) return Wrong(place, "tag_pattern: " + compiled.status().message());
  if (!compiled->has_group("key")) return Wrong(place, "tag_pattern must have the group key");
  reader->member = std::move(*compiled);
  ASSIGN_OR_RETURN(reader->merges_members, Flag(place, args, "merge_duplicates", false));
  return OkStatus();
}

// ---- Values ----

// Stand for strings with other marks than quotes while the rest is read.
constexpr char kStringBegin = '\1';
constexpr char kStringEnd = '\2';

// Takes the strings between `begin` and `end` out of the text.
void TakeStrings(std::string_view begin, std::string_view end, std::string* text,
                 std::vector<std::string>* strings) {
  std::string rest;
  size_t at = 0;
  for (;;) {
    const size_t open = text->find(begin, at);
    const size_t close = open == text->npos ? open : text->find(end, open + begin.size());
    if (close == text->npos) break;
    rest.append(*text, at, open - at);
    rest += kStringBegin + std::to_string(strings->size()) + kStringEnd;
    strings->push_back(text->substr(open + begin.size(), close - open - begin.size()));
    at = close + end.size();
  }
  rest.append(*text, at);
  *text = std::move(rest);
}

// {a:1,b:2} as {"a":1,"b":2}.
std::string WithQuotedKeys(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i++];
    out += c;
    if (c != '{' && c != ',') continue;
    size_t end = i;
    while (end < text.size() && IsWordByte(text[end])) ++end;
    if (end == i || end == text.size() || text[end] != ':') continue;
    out.append("\"").append(text.substr(i, end - i)).append("\"");
    i = end;
  }
  return out;
}

// The strings that were taken out, as JSON has them.
std::string WithStrings(std::string_view text, const std::vector<std::string>& strings) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = text[i] == kStringBegin ? text.find(kStringEnd, i) : text.npos;
    const auto index =
        end == text.npos ? std::nullopt : ParseNumber<size_t>(text.substr(i + 1, end - i - 1));
    if (index && *index < strings.size()) {
      out += QuoteJson(strings[*index]);
      i = end;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::optional<Json> ReadJson(const FieldReader& reader, std::string_view text) {
  std::string json(text);
  std::vector<std::string> strings;
  if (!reader.string_marks.empty()) {
    if (json.find(kStringBegin) != json.npos || json.find(kStringEnd) != json.npos) {
      return std::nullopt;
    }
    for (const auto& [begin, end] : reader.string_marks) TakeStrings(begin, end, &json, &strings);
  }
  if (reader.has_bare_keys) json = WithQuotedKeys(json);
  json = WithStrings(json, strings);
  auto value = ParseJson(json, {.takes_repeated_keys = true});
  if (value.ok()) return std::move(value->mutable_value());
  if (!reader.allows_other_texts) return std::nullopt;
  return Json(reader.strips ? StripAscii(text) : text);
}

std::optional<Json> ReadValue(const FieldReader& reader, std::string_view text,
                              RegexBudget* budget) {
  if (reader.values == nullptr) return Json(text);
  return reader.values->Read(text, budget);
}

std::optional<Json> ReadMembers(const FieldReader& reader, std::string_view text,
                                RegexBudget* budget) {
  using Kind = PartialRegex::Match::Kind;
  Json members = Json::object();
  for (size_t at = 0; at <= text.size();) {
    const auto match = reader.member->Search(text, at, /*ended=*/true, budget);
    if (match.kind == Kind::kTooLong) return std::nullopt;
    if (match.kind != Kind::kFound) break;
    const std::string* key = nullptr;
    std::string_view content;
    for (const auto& [name, group] : match.groups) {
      if (name == "key") key = &group;
      if (name == "value") content = group;
    }
    if (key == nullptr) return std::nullopt;
    std::optional<Json> value = ReadValue(reader, content, budget);
    if (!value) return std::nullopt;
    const auto earlier = members.find(*key);
    if (earlier != members.end() && reader.merges_members) {
      if (!earlier->is_array()) *earlier = Json::array({*earlier});
      earlier->push_back(*std::move(value));
    } else {
      members[*key] = *std::move(value);
    }
    at = match.end > match.begin ? match.end : match.end + 1;
    while (at < text.size() && IsUtf8Continuation(text[at])) ++at;
  }
  return members;
}

std::optional<Json> ReadLines(const FieldReader& reader, std::string_view text,
                              RegexBudget* budget) {
  const auto strip = [&reader](std::string_view part) {
    return reader.strips ? StripAscii(part) : part;
  };
  Json members = Json::object();
  for (size_t begin = 0; begin != text.npos;) {
    const size_t end = text.find(reader.line_end, begin);
    const std::string_view line = strip(text.substr(begin, end - begin));
    begin = end == text.npos ? end : end + reader.line_end.size();
    const size_t key_end = line.find(reader.key_end);
    if (key_end == line.npos) continue;
    const std::string_view content = strip(line.substr(key_end + reader.key_end.size()));
    std::optional<Json> value = ReadValue(reader, content, budget);
    if (!value) return std::nullopt;
    members[std::string(strip(line.substr(0, key_end)))] = *std::move(value);
  }
  return members;
}

}  // namespace

StatusOr<FieldReader> FieldReader::Parse(const std::string& place, const Json* name,
                                         const Json* args, int depth) {
  FieldReader reader;
  if (depth > kMaxDepth) return Wrong(place, "is nested too deep");
  if (name != nullptr) {
    const auto* const row =
        std::find_if(std::begin(kForms), std::end(kForms),
                     [name](const FormName& each) { return *name == each.name; });
    if (row == std::end(kForms)) {
      return Wrong(place, "has a form that is not known: " + Shorten(name->dump()) +
                              "; known: text, int, float, bool, json, xml-inline, kv-lines");
    }
    reader.form = row->form;
  }
  const Json none = Json::object();
  if (args == nullptr) args = &none;
  if (!args->is_object()) return Wrong(place, "content_args must be an object");
  using Form = FieldReader::Form;
  ASSIGN_OR_RETURN(reader.strips, Flag(place, *args, "strip", true));
  if (reader.form == Form::kJson) RETURN_IF_ERROR(SetJsonReader(place, *args, &reader));
  if (reader.form == Form::kXmlInline) RETURN_IF_ERROR(SetMemberReader(place, *args, &reader));
  if (reader.form == Form::kKeyedLines) {
    ASSIGN_OR_RETURN(reader.line_end, Text(place, *args, "line_sep", reader.line_end));
    ASSIGN_OR_RETURN(reader.key_end, Text(place, *args, "kv_sep", reader.key_end));
  }
  const Json* const values = Member(*args, "value_parser");
  if (values != nullptr && (reader.form == Form::kXmlInline || reader.form == Form::kKeyedLines)) {
    RETURN_IF_ERROR(CheckKeys(place, *values, {"name", "args"}));
    ASSIGN_OR_RETURN(FieldReader inner, FieldReader::Parse(place, Member(*values, "name"),
                                                           Member(*values, "args"), depth + 1));
    reader.values = std::make_unique<FieldReader>(std::move(inner));
  }
  return reader;
}

std::optional<Json> FieldReader::Read(std::string_view text, RegexBudget* budget) const {
  const std::string_view bare = StripAscii(text);
  switch (form) {
    case Form::kText:
      return Json(strips ? bare : text);
    case Form::kInteger: {
      const auto value = ParseNumber<int64_t>(bare);
      return value ? std::optional(Json(*value)) : std::nullopt;
    }
    case Form::kFloat: {
      const auto value = ParseNumber<double>(bare);
      return value && std::isfinite(*value) ? std::optional(Json(*value)) : std::nullopt;
    }
    case Form::kBoolean:
      return Json(ToLower(bare) == "true" || bare == "1");
    case Form::kJson:
      return ReadJson(*this, text);
    case Form::kXmlInline:
      return ReadMembers(*this, text, budget);
    case Form::kKeyedLines:
      return ReadLines(*this, text, budget);
  }
  return std::nullopt;
}

}  // namespace tandem
