#include "grammar/compiler/spec_rewrites.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/shorten.h"
#include "common/strings.h"
#include "grammar/schema/json_pattern.h"
#include "grammar/schema/json_references.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

struct Place {
  size_t begin;
  size_t end;
};

// The first "[12:00:01] /path/file.cc:12: " at or after a position; it begins at npos: there is
// none.
Place FindPlace(std::string_view message, size_t from) {
  for (;; ++from) {
    from = message.find('[', from);
    if (from == message.npos) return {message.npos, message.npos};
    const size_t path = message.find_first_not_of("0123456789:", from + 1);
    if (path == message.npos || message.substr(path, 2) != "] ") continue;
    std::string_view place = message.substr(path + 2);
    place = place.substr(0, place.find_first_of(" \n"));
    size_t line = place.rfind(".cc:");
    if (line == place.npos) line = place.rfind(".h:");
    if (line == place.npos) continue;
    const size_t end = path + 2 + place.size();
    return {from, std::min(message.size(), message.find_first_not_of(' ', end))};
  }
}

// "Check failed: (condition) is false: " at the beginning.
std::string_view WithoutCondition(std::string_view message) {
  constexpr std::string_view kFalse = " is false: ";
  if (!message.starts_with("Check failed: ")) return message;
  const size_t at = message.find(kFalse);
  if (at == message.npos || at + kFalse.size() == message.size()) return message;
  return message.substr(at + kFalse.size());
}

StatusOr<Json> TagOf(const Json& structure) {
  const bool is_whole = structure.is_object() && structure.contains("begin") &&
                        structure.contains("end") && structure.contains("schema");
  if (!is_whole) return InvalidArgumentError("each of `structures` needs begin, schema and end");
  Json schema = structure["schema"];
  if (schema.is_string()) schema = Json::parse(schema.get<std::string>(), nullptr, false);
  if (schema.is_discarded()) return InvalidArgumentError("a schema in `structures` is not JSON");
  return Json{{"type", "tag"},
              {"begin", structure["begin"]},
              {"content", {{"type", "json_schema"}, {"json_schema", std::move(schema)}}},
              {"end", structure["end"]}};
}

// Caps the blanks between the tokens of each JSON schema that does not do so itself.
void CapBlanks(Json* format) {
  if (format->is_object() && format->contains("json_schema")) {
    Json& most = (*format)["max_whitespace_cnt"];
    if (most.is_null()) most = 1;
    return;
  }
  if (!format->is_structured()) return;
  for (Json& part : *format) CapBlanks(&part);
}

// In the form of today.
StatusOr<Json> ConvertedTag(const Json& tag) {
  if (!tag.contains("structures")) return tag;
  if (!tag["structures"].is_array() || !tag.contains("triggers")) {
    return InvalidArgumentError("a structural tag with `structures` needs a list of `triggers`");
  }
  Json tags = Json::array();
  for (const Json& structure : tag["structures"]) {
    ASSIGN_OR_RETURN(Json converted, TagOf(structure));
    tags.push_back(std::move(converted));
  }
  return Json{
      {"type", "structural_tag"},
      {"format", {{"type", "triggered_tags"}, {"triggers", tag["triggers"]}, {"tags", tags}}}};
}

// Between [ and ], where it begins with an escaped caret.
std::string WithoutLeadingCaret(std::string_view members) {
  members.remove_prefix(2);
  while (members.starts_with("^") || members.starts_with("\\^")) {
    members.remove_prefix(members[0] == '^' ? 1 : 2);
  }
  if (members.empty()) return "\\^";
  // A range from the caret goes on from the next character.
  const bool is_range = members.size() > 1 && members[0] == '-';
  return std::string("(\\^|[") + (is_range ? "_" : "") + std::string(members) + "])";
}

std::string Readable(std::string_view pattern) {
  // pydantic's Decimal: a lookahead only keeps away texts without a digit.
  if (pattern == R"(^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$)") return R"(^[+-]?(\d+\.?\d*|\.\d+)$)";
  return InPrintableAscii(WithoutLeadingCarets(pattern));
}

// Whether a name changed.
bool RewriteNames(Json* patterns) {
  Json rewritten = Json::object();
  bool is_changed = false;
  for (auto& [pattern, schema] : patterns->items()) {
    std::string name = Readable(pattern);
    is_changed |= name != pattern;
    rewritten[std::move(name)] = std::move(schema);
  }
  *patterns = std::move(rewritten);
  return is_changed;
}

// Whether a pattern changed.
bool RewritePatterns(Json* part) {
  bool is_changed = false;
  for (auto& [key, value] : part->items()) {
    if (IsData(key)) continue;
    if (value.is_structured()) is_changed |= RewritePatterns(&value);
    if (key == "patternProperties" && value.is_object()) is_changed |= RewriteNames(&value);
    if (key != "pattern" || !value.is_string()) continue;
    std::string rewritten = Readable(value.get_ref<const std::string&>());
    is_changed |= rewritten != value.get_ref<const std::string&>();
    value = std::move(rewritten);
  }
  return is_changed;
}

// Where `items` is a list it is of the first ones, and `additionalItems` is of those after it.
bool RewriteTuple(Json* schema) {
  const auto items = schema->find("items");
  if (items == schema->end() || !items->is_array() || schema->contains("prefixItems")) return false;
  Json first = std::move(*items);
  schema->erase("items");
  (*schema)["prefixItems"] = std::move(first);
  if (const auto others = schema->find("additionalItems"); others != schema->end()) {
    Json moved = std::move(*others);
    schema->erase("additionalItems");
    (*schema)["items"] = std::move(moved);
  }
  return true;
}

bool RewriteLengths(Json* schema) {
  constexpr std::string_view kNeverEmpty[] = {"date", "date-time", "duration", "email", "hostname",
                                              "ipv4", "ipv6",      "time",     "uri",   "uuid"};
  constexpr int64_t kNoLimit = 2000;
  const auto format = schema->find("format");
  if (format == schema->end() || !format->is_string()) return false;
  const auto is_integer = [schema](const char* key) {
    const auto found = schema->find(key);
    return found != schema->end() && found->is_number_integer();
  };
  const auto& name = format->get_ref<const std::string&>();
  const bool never_empty = std::ranges::find(kNeverEmpty, name) != std::end(kNeverEmpty);
  size_t num_erased = 0;
  if (never_empty && is_integer("minLength") && (*schema)["minLength"] <= 1) {
    num_erased += schema->erase("minLength");
  }
  if (never_empty && is_integer("maxLength") && (*schema)["maxLength"] >= kNoLimit) {
    num_erased += schema->erase("maxLength");
  }
  return num_erased > 0;
}

bool RewriteFormat(Json* schema) {
  const auto pattern = schema->find("pattern");
  if (pattern == schema->end() || !pattern->is_string() || !schema->contains("format")) {
    return false;
  }
  const auto& regex = pattern->get_ref<const std::string&>();
  for (const char* unreadable : {"(?=", "(?!", "(?<"}) {
    if (regex.find(unreadable) != regex.npos) return false;
  }
  return schema->erase("format") > 0;
}

bool RewriteKeywords(Json* part) {
  if (!part->is_structured()) return false;
  bool is_changed = part->is_object() && RewriteTuple(part);
  is_changed |= part->is_object() && RewriteLengths(part);
  is_changed |= part->is_object() && RewriteFormat(part);
  for (auto it = part->begin(); it != part->end(); ++it) {
    if (part->is_object() && IsData(it.key())) continue;
    is_changed |= RewriteKeywords(&*it);
  }
  return is_changed;
}

// Patterns and keywords, whether of one schema or of several in a tag.
bool RewriteForm(Json* part) {
  bool is_changed = part->is_structured() && RewritePatterns(part);
  is_changed |= RewriteKeywords(part);
  return is_changed;
}

// Whether one changed. Each schema of a tag is a whole one.
bool GiveTargetsNamesInTag(Json* part) {
  if (!part->is_structured()) return false;
  bool is_changed = false;
  for (auto it = part->begin(); it != part->end(); ++it) {
    const bool is_schema = part->is_object() && it.key() == "json_schema";
    is_changed |= is_schema ? GiveTargetsNames(&*it) : GiveTargetsNamesInTag(&*it);
  }
  return is_changed;
}

}  // namespace

bool LooksLikeLark(std::string_view grammar) {
  for (std::string_view line : Split(grammar, '\n')) {
    line = line.substr(0, std::min(line.find('#'), line.find("//")));
    if (line.find("::=") != line.npos) return false;
  }
  return true;
}

StatusOr<bool> UpdateStructuralTag(JsonBlanks blanks, Json* tag) {
  if (!tag->is_object()) return InvalidArgumentError("a structural tag must be a JSON object");
  if (!tag->contains("structures") && blanks == JsonBlanks::kAny) return false;
  ASSIGN_OR_RETURN(*tag, ConvertedTag(*tag));
  if (blanks != JsonBlanks::kAny) CapBlanks(tag);
  return true;
}

std::string WithoutLeadingCarets(std::string_view regex) {
  std::string rewritten;
  size_t done = 0;
  size_t at = 0;
  const auto end_of_class = [regex](size_t from) {
    while (from < regex.size() && regex[from] != ']') from += regex[from] == '\\' ? 2 : 1;
    return std::min(from, regex.size());
  };
  while (at < regex.size()) {
    if (regex[at] != '[') {
      at += regex[at] == '\\' ? 2 : 1;
      continue;
    }
    const size_t end = end_of_class(at + 1);
    const std::string_view members = regex.substr(at + 1, end - at - 1);
    if (end < regex.size() && members.starts_with("\\^")) {
      rewritten.append(regex, done, at - done).append(WithoutLeadingCaret(members));
      done = end + 1;
    }
    at = end + 1;
  }
  return rewritten.append(regex.substr(done));
}

bool RewriteSchema(Json* schema) {
  bool is_changed = RewriteForm(schema);
  is_changed |= GiveTargetsNames(schema);
  return is_changed;
}

bool RewriteSchemasOfTag(Json* tag) {
  bool is_changed = RewriteForm(tag);
  is_changed |= GiveTargetsNamesInTag(tag);
  return is_changed;
}

std::string PlainMessage(std::string_view message) {
  constexpr size_t kMaxBytes = 1000;
  std::string text;
  std::vector<std::string_view> lines;  // of the library's log, each once
  size_t begin = 0;
  while (begin < message.size()) {
    const Place next = FindPlace(message, begin);
    const std::string_view line =
        StripAscii(WithoutCondition(message.substr(begin, next.begin - begin)));
    const bool is_new = std::find(lines.begin(), lines.end(), line) == lines.end();
    if (!line.empty() && is_new) {
      if (!lines.empty()) text += '\n';
      text += line;
      lines.push_back(line);
    }
    begin = next.end;
  }
  return Shorten(text, kMaxBytes);
}

}  // namespace tandem
