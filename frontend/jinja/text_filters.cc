// Jinja's filters that make text, as jinja2 3.1 defines them, and transformers' tojson.

#include <algorithm>
#include <array>

#include "common/utf8.h"
#include "frontend/jinja/filter.h"
#include "frontend/jinja/format.h"
#include "frontend/jinja/interpreter.h"
#include "frontend/jinja/text.h"

namespace tandem::jinja {
namespace {

TANDEM_FILTER(FilterUpper) {
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  return interpreter.String(Upper(text));
}
TANDEM_FILTER(FilterLower) {
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  return interpreter.String(Lower(text));
}
TANDEM_FILTER(FilterCapitalize) {
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  return interpreter.String(Capitalize(text));
}

// Unlike in str.title(), an apostrophe does not end a word.
TANDEM_FILTER(FilterTitle) {
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  std::string out;
  bool word_begins = true;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextUtf8(text, &pos);
    const std::string_view character = text.substr(begin, pos - begin);
    const bool separates =
        IsSpaceChar(c) || std::string_view("-({[<").find(character) != std::string_view::npos;
    out += separates ? std::string(character) : word_begins ? Upper(character) : Lower(character);
    word_begins = separates;
  }
  return interpreter.String(std::move(out));
}

TANDEM_FILTER(FilterTrim) {
  ASSIGN_OR_RETURN(const auto bound, Bind("trim", args, {"chars"}));
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  if (!bound[0].IsGiven() || bound[0].IsNone()) return Text(Strip(text, {}, true, true));
  ASSIGN_OR_RETURN(const std::string_view chars, ToString(bound[0], "chars", ""));
  return Text(chars.empty() ? text : Strip(text, chars, true, true));
}

TANDEM_FILTER(FilterString) {
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  return Text(text);
}

TANDEM_FILTER(FilterEscape) {
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  return interpreter.String(EscapeHtml(text));
}

TANDEM_FILTER(FilterStripTags) {
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  return interpreter.String(StripTags(text));
}

TANDEM_FILTER(FilterReplace) {
  ASSIGN_OR_RETURN(const auto bound, Bind("replace", args, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  ASSIGN_OR_RETURN(const std::string_view from, interpreter.Str(bound[0]));
  ASSIGN_OR_RETURN(const std::string_view to, interpreter.Str(bound[1]));
  const bool all = !bound[2].IsGiven() || bound[2].IsNone();
  ASSIGN_OR_RETURN(const int64_t count, ToIndex(all ? Value() : bound[2], "count", -1));
  RETURN_IF_ERROR(interpreter.heap().Reserve(
      static_cast<int64_t>(CountOccurrences(text, from) * to.size() + text.size())));
  return interpreter.String(ReplaceAll(text, from, to, count));
}

TANDEM_FILTER(FilterIndent) {
  ASSIGN_OR_RETURN(const auto bound, Bind("indent", args, {"width", "first", "blank"}));
  ASSIGN_OR_RETURN(const std::string_view text,
                   ToString(input.IsUndefined() ? Value() : input, "the input of indent()", ""));
  const bool first = Flag(bound[1], false);
  const bool blank = Flag(bound[2], false);
  std::string indention;
  if (bound[0].IsString()) {
    indention = std::string(bound[0].View());
  } else {
    ASSIGN_OR_RETURN(const int64_t width, ToIndex(bound[0], "width", 4));
    if (width > kMaxWidth) return ResourceExhaustedError("indent() by more than 10000");
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  auto lines = SplitLines(text, false);
  if (text.empty() || text.back() == '\n') lines.emplace_back();
  RETURN_IF_ERROR(interpreter.heap().Reserve(
      static_cast<int64_t>(lines.size() * (indention.size() + 1) + text.size())));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += indention;
    out += lines[i];
  }
  return interpreter.String(std::move(out));
}

TANDEM_FILTER(FilterCenter) {
  ASSIGN_OR_RETURN(const auto bound, Bind("center", args, {"width"}));
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  ASSIGN_OR_RETURN(const int64_t width, ToIndex(bound[0], "width", 80));
  if (width > kMaxWidth) return ResourceExhaustedError("center() wider than 10000");
  const auto size = static_cast<int64_t>(CountUtf8(text));
  if (width <= size) return Text(text);
  const int64_t missing = width - size;
  // Python's str.center puts the odd blank left when the width is odd.
  const int64_t left = missing / 2 + (missing & width & 1);
  return interpreter.String(
      Pad(text, static_cast<size_t>(left), static_cast<size_t>(missing - left), " "));
}

TANDEM_FILTER(FilterTruncate) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind("truncate", args, {"length", "killwords", "end", "leeway"}));
  ASSIGN_OR_RETURN(const std::string_view text,
                   ToString(input.IsUndefined() ? Value() : input, "the input of truncate()", ""));
  ASSIGN_OR_RETURN(const int64_t length, ToIndex(bound[0], "length", 255));
  const bool killwords = Flag(bound[1], false);
  ASSIGN_OR_RETURN(const std::string_view end, ToString(bound[2], "end", "..."));
  ASSIGN_OR_RETURN(const int64_t leeway,
                   ToIndex(bound[3].IsNone() ? Value() : bound[3], "leeway", 5));
  const auto end_size = static_cast<int64_t>(CountUtf8(end));
  if (length < end_size) return InvalidArgumentError("truncate() shorter than its end");
  if (static_cast<int64_t>(CountUtf8(text)) <= length + leeway) return Text(text);
  std::string_view kept =
      text.substr(0, BytePosition(text, static_cast<size_t>(length - end_size)));
  if (!killwords) kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  return interpreter.String(std::string(kept) + std::string(end));
}

TANDEM_FILTER(FilterWordCount) {
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  int64_t count = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const bool word = IsWordChar(NextUtf8(text, &pos));
    if (word && !inside) ++count;
    inside = word;
  }
  return Integer(count);
}

TANDEM_FILTER(FilterFormat) {
  ASSIGN_OR_RETURN(const std::string_view format, interpreter.Str(input));
  if (!args.named.empty() && !args.positional.empty()) {
    return InvalidArgumentError("can't handle positional and keyword arguments at the same time");
  }
  Value names;
  if (!args.named.empty()) {
    Dict dict;
    for (const auto& [name, value] : args.named) dict.Set(Text(name), value);
    names = interpreter.heap().NewDict(std::move(dict));
  }
  int64_t weight = 0;
  for (const Value& value : args.positional) weight += Weight(value);
  RETURN_IF_ERROR(interpreter.CountSteps(weight / 32));
  ASSIGN_OR_RETURN(std::string text, PercentFormat(format, args.positional, names));
  return interpreter.String(std::move(text));
}

TANDEM_FILTER(FilterUrlEncode) {
  if (input.IsString() || !(input.IsDict() || input.IsSequence())) {
    ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
    return interpreter.String(UrlQuote(text, "/"));
  }
  std::vector<std::pair<Value, Value>> pairs;
  if (input.IsDict()) {
    pairs = input.dict->items;
  } else {
    ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
    for (const Value& item : items) {
      ASSIGN_OR_RETURN(const std::vector<Value> pair, interpreter.Items(item));
      if (pair.size() != 2) return InvalidArgumentError("urlencode() needs pairs");
      pairs.emplace_back(pair[0], pair[1]);
    }
  }
  std::string out;
  for (const auto& [key, value] : pairs) {
    ASSIGN_OR_RETURN(const std::string_view key_text, interpreter.Str(key));
    ASSIGN_OR_RETURN(const std::string_view value_text, interpreter.Str(value));
    if (!out.empty()) out += '&';
    out += UrlQuote(key_text, "") + "=" + UrlQuote(value_text, "");
  }
  return interpreter.String(std::move(out));
}

StatusOr<JsonStyle> ToStyle(const std::vector<Value>& bound) {
  JsonStyle style;
  style.ensure_ascii = bound[0].IsGiven() && IsTrue(bound[0]);
  style.sort_keys = bound[3].IsGiven() && IsTrue(bound[3]);
  if (bound[1].IsGiven() && !bound[1].IsNone()) {
    style.indented = true;
    style.item_separator = ",";
    if (bound[1].IsString()) {
      style.indent = std::string(bound[1].View());
    } else {
      ASSIGN_OR_RETURN(const int64_t indent, ToIndex(bound[1], "indent", 0));
      style.indent.assign(static_cast<size_t>(std::clamp<int64_t>(indent, 0, 100)), ' ');
    }
  }
  if (bound[2].IsGiven() && !bound[2].IsNone()) {
    const bool pair = bound[2].IsSequence() && bound[2].sequence->items.size() == 2;
    if (!pair) return InvalidArgumentError("tojson(): separators must be a pair of strings");
    ASSIGN_OR_RETURN(style.item_separator, ToString(bound[2].sequence->items[0], "separator", ""));
    ASSIGN_OR_RETURN(style.key_separator, ToString(bound[2].sequence->items[1], "separator", ""));
  }
  return style;
}

TANDEM_FILTER(FilterToJson) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  ASSIGN_OR_RETURN(const JsonStyle style, ToStyle(bound));
  RETURN_IF_ERROR(interpreter.CountSteps(Weight(input) / 32));
  ASSIGN_OR_RETURN(std::string text, ToJson(input, style));
  return interpreter.String(std::move(text));
}

constexpr std::array<NamedFunction, 19> kTextFilters = {{
    {"capitalize", FilterCapitalize}, {"center", FilterCenter},      {"e", FilterEscape},
    {"escape", FilterEscape},         {"forceescape", FilterEscape}, {"format", FilterFormat},
    {"indent", FilterIndent},         {"lower", FilterLower},        {"replace", FilterReplace},
    {"safe", FilterString},           {"string", FilterString},      {"striptags", FilterStripTags},
    {"title", FilterTitle},           {"tojson", FilterToJson},      {"trim", FilterTrim},
    {"truncate", FilterTruncate},     {"upper", FilterUpper},        {"urlencode", FilterUrlEncode},
    {"wordcount", FilterWordCount},
}};

}  // namespace

Function FindTextFilter(std::string_view name) { return FindFunction(kTextFilters, name); }

}  // namespace tandem::jinja
