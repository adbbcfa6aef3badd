#include "frontend/parsers/described_tags.h"

#include <optional>
#include <string>
#include <utility>

#include "common/utf8.h"
#include "frontend/parsers/tool_set.h"

namespace tandem {
namespace {

using Json = ResponseTemplate::Json;
using Field = ResponseTemplate::Field;

// A shortest text that an expression without groups and classes matches; nullopt: it has some.
std::optional<std::string> Shortest(std::string_view pattern) {
  std::string text;
  for (size_t i = 0; i < pattern.size();) {
    std::string atom(1, pattern[i++]);
    const bool is_escape = atom == "\\";
    if (is_escape) {
      if (i == pattern.size()) return std::nullopt;
      atom = pattern[i++];
    }
    const char c = atom[0];
    const bool is_letter =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (is_escape && is_letter) {
      constexpr std::string_view kNames = "nrts", kMeanings = "\n\r\t ";
      const size_t which = kNames.find(c);
      if (which == kNames.npos) return std::nullopt;
      atom = kMeanings[which];
    } else if (!is_escape && std::string_view(".^$*+?{}[]|()").find(c) != std::string_view::npos) {
      return std::nullopt;
    }
    while (i < pattern.size() && IsUtf8Continuation(pattern[i])) {
      atom += pattern[i++];
    }
    const char repeat = i < pattern.size() ? pattern[i] : '\0';
    if (repeat == '?' || repeat == '*' || repeat == '+') ++i;
    if (repeat != '?' && repeat != '*') text += atom;
    const bool is_lazy = i < pattern.size() && (pattern[i] == '?' || pattern[i] == '+');
    if (is_lazy && (repeat == '?' || repeat == '*' || repeat == '+')) ++i;
  }
  return text;
}

// What stands before and after the group of the name.
std::optional<std::pair<std::string, std::string>> AroundName(std::string_view pattern) {
  constexpr std::string_view kGroup = "(?P<name>";
  const size_t begin = pattern.find(kGroup);
  if (begin == pattern.npos) return std::nullopt;
  int depth = 0;
  bool in_class = false;
  for (size_t i = begin; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')' && --depth == 0) {
      auto before = Shortest(pattern.substr(0, begin));
      auto after = Shortest(pattern.substr(i + 1));
      if (!before || !after) return std::nullopt;
      return std::pair(*std::move(before), *std::move(after));
    }
  }
  return std::nullopt;
}

struct Spelling {
  std::string begin, middle, end;
  bool name_is_json = false;
};

std::optional<Spelling> SpellingOf(const Field& field) {
  const FieldReader& reader = field.reader;
  const bool is_json = reader.form == FieldReader::Form::kJson && reader.string_marks.empty() &&
                       !reader.has_bare_keys && !field.transforms_each;
  if (!is_json || field.close.words.empty() || !field.transform.is_object()) return std::nullopt;
  const auto function = field.transform.find("function");
  if (function == field.transform.end()) return std::nullopt;
  const std::string& end = field.close.words.front();
  if (*function == "{content}" && !field.open.words.empty()) {
    return Spelling{.begin = field.open.words.front() + "{\"name\": \"",
                    .middle = "\", \"arguments\": ",
                    .end = "}" + end,
                    .name_is_json = true};
  }
  const Json by_name = {{"name", "{name}"}, {"arguments", "{content}"}};
  auto around = AroundName(field.open.expression);
  if (*function != by_name || !around || around->first.empty()) return std::nullopt;
  return Spelling{.begin = around->first, .middle = around->second, .end = end};
}

}  // namespace

std::shared_ptr<const ToolParserRow> WithTagsOf(const ResponseTemplate& described,
                                                const ToolParserRow& row) {
  const Field* const calls = described.Find(ResponseTemplate::Part::kCalls);
  if (calls == nullptr) return nullptr;
  std::optional<Spelling> spelling = SpellingOf(*calls);
  if (!spelling) return nullptr;
  struct Owned {
    Spelling spelling;
    std::string trigger;
    ToolTags tags;
    ToolParserRow row;
  };
  auto owned = std::make_shared<Owned>(Owned{*std::move(spelling), {}, {}, row});
  const Spelling& own = owned->spelling;
  owned->trigger = own.name_is_json ? calls->open.words.front() : own.begin;
  owned->tags = {.forced = ToolTags::Forced::kTags,
                 .trigger = owned->trigger,
                 .call = {own.begin, own.middle, own.end},
                 .name_is_json = own.name_is_json,
                 .excludes = ""};
  owned->row.tags = &owned->tags;
  owned->row.forced = ForcedCall::kNative;
  return {owned, &owned->row};
}

bool CanCall(const ResponseTemplate& described, const ToolParserRow& row, std::string_view name) {
  const Field& calls = *described.Find(ResponseTemplate::Part::kCalls);
  if (row.tags->name_is_json) return true;
  const ToolTags::Call& spelling = row.tags->call;
  std::string mark(spelling.begin);
  mark.append(name).append(spelling.middle);
  // JSON follows the mark, so it ends where that begins.
  const std::string text = mark + "{";
  RegexBudget budget;
  const auto match = calls.open.pattern->Search(text, 0, /*ended=*/true, &budget);
  if (match.kind != PartialRegex::Match::Kind::kFound || match.begin != 0) return false;
  if (match.end != mark.size()) return false;
  for (const auto& [group, value] : match.groups) {
    if (group == "name") return value == name;
  }
  return false;
}

}  // namespace tandem
