// Jinja's filters (value | name(args)), as jinja2 3.1 defines them, and transformers' tojson.

#include <algorithm>
#include <array>
#include <cmath>

#include "common/utf8.h"
#include "frontend/chat/jinja_builtins.h"
#include "frontend/chat/jinja_format.h"
#include "frontend/chat/jinja_interpreter.h"
#include "frontend/chat/jinja_text.h"

namespace tandem::jinja {
namespace {

// Every filter has this shape; the names say what is what.
#define TANDEM_FILTER(name)                                       \
  StatusOr<Value> name([[maybe_unused]] Interpreter& interpreter, \
                       [[maybe_unused]] const Value& input,       \
                       [[maybe_unused]] const Arguments& args)

StatusOr<bool> Flag(const Value& value, bool fallback) {
  return value.IsGiven() ? IsTrue(value) : fallback;
}

StatusOr<Value> NewList(Interpreter& interpreter, std::vector<Value> items) {
  return interpreter.heap().NewSequence(Kind::kList, std::move(items));
}

StatusOr<Value> NewGenerator(Interpreter& interpreter, std::vector<Value> items) {
  return interpreter.heap().NewSequence(Kind::kGenerator, std::move(items));
}

// item.a.b for "a.b"; whole numbers are indexes. An empty path is the item itself.
StatusOr<Value> AttributePath(Interpreter& interpreter, Value item, const Value& path,
                              const Value& fallback) {
  if (!path.IsGiven() || path.IsNone()) return item;
  if (path.IsInteger()) {
    ASSIGN_OR_RETURN(item, interpreter.GetItem(item, path));
  } else {
    ASSIGN_OR_RETURN(const std::string_view text, ToString(path, "attribute", ""));
    for (const std::string_view part : SplitText(text, ".", -1, false)) {
      const bool digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
      const Value index = digits ? Integer(ParseInt(part, 10).value_or(0)) : Text(part);
      ASSIGN_OR_RETURN(item, interpreter.GetItem(item, index));
      if (item.IsUndefined() && fallback.IsGiven()) return fallback;
    }
  }
  return item.IsUndefined() && fallback.IsGiven() ? fallback : item;
}

// What a value is sorted or compared by: the attribute, in lower case unless case counts.
StatusOr<Value> SortKey(Interpreter& interpreter, const Value& item, const Value& attribute,
                        bool case_sensitive) {
  const auto fold = [&](const Value& key) {
    return !case_sensitive && key.IsString() ? interpreter.String(Lower(key.View())) : key;
  };
  if (attribute.IsString() && attribute.View().find(',') != std::string_view::npos) {
    std::vector<Value> keys;
    for (const std::string_view part : SplitText(attribute.View(), ",", -1, false)) {
      ASSIGN_OR_RETURN(const Value key, AttributePath(interpreter, item, Text(part), Value()));
      keys.push_back(fold(key));
    }
    return interpreter.heap().NewSequence(Kind::kList, std::move(keys));
  }
  ASSIGN_OR_RETURN(const Value key, AttributePath(interpreter, item, attribute, Value()));
  return fold(key);
}

struct Keyed {
  Value key;
  Value item;
};

StatusOr<std::vector<Keyed>> WithKeys(Interpreter& interpreter, const std::vector<Value>& items,
                                      const Value& attribute, bool case_sensitive) {
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value key, SortKey(interpreter, item, attribute, case_sensitive));
    keyed.push_back({key, item});
  }
  return keyed;
}

Status SortByKey(Interpreter& interpreter, bool reverse, std::vector<Keyed>* keyed) {
  Status status;
  int64_t cost = 0;
  // Equal keys keep their order, also in reverse.
  const auto less = [&](const Keyed& a, const Keyed& b) {
    if (!status.ok()) return false;
    cost += 1 + std::min(Weight(a.key), Weight(b.key)) / 32;
    const auto order = reverse ? Compare(b.key, a.key) : Compare(a.key, b.key);
    if (!order.ok()) status = order.status();
    return order.ok() && *order < 0;
  };
  std::stable_sort(keyed->begin(), keyed->end(), less);
  RETURN_IF_ERROR(status);
  return interpreter.CountSteps(cost / 4);
}

// --- text ---

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

// Unlike str.title() a word goes on behind an apostrophe.
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
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  ASSIGN_OR_RETURN(const bool first, Flag(bound[1], false));
  ASSIGN_OR_RETURN(const bool blank, Flag(bound[2], false));
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
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  ASSIGN_OR_RETURN(const int64_t length, ToIndex(bound[0], "length", 255));
  ASSIGN_OR_RETURN(const bool killwords, Flag(bound[1], false));
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

// --- numbers ---

TANDEM_FILTER(FilterInt) {
  ASSIGN_OR_RETURN(const auto bound, Bind("int", args, {"default", "base"}));
  ASSIGN_OR_RETURN(const int64_t base, ToIndex(bound[1], "base", 10));
  const Value fallback = bound[0].IsGiven() ? bound[0] : Integer(0);
  if (input.IsInteger()) return Integer(input.AsInt());
  double real = NAN;
  if (input.kind == Kind::kFloat) real = input.real;
  if (input.IsString()) {
    const std::string_view text = Strip(input.View(), {}, true, true);
    if (base < 2 || base > 36) return fallback;
    if (const auto value = ParseInt(text, static_cast<int>(base)); value.has_value()) {
      return Integer(*value);
    }
    real = ParseFloat(text).value_or(NAN);
  }
  if (!std::isfinite(real) || std::fabs(real) > 1e37) return fallback;
  return Integer(static_cast<Int>(real));
}

TANDEM_FILTER(FilterFloat) {
  ASSIGN_OR_RETURN(const auto bound, Bind("float", args, {"default"}));
  const Value fallback = bound[0].IsGiven() ? bound[0] : Float(0);
  if (input.IsNumber()) return Float(input.AsDouble());
  if (!input.IsString()) return fallback;
  const auto value = ParseFloat(Strip(input.View(), {}, true, true));
  return value.has_value() ? Float(*value) : fallback;
}

TANDEM_FILTER(FilterAbs) {
  if (!input.IsNumber()) {
    return InvalidArgumentError("bad operand type for abs(): '" + std::string(TypeName(input)) +
                                "'");
  }
  if (input.kind == Kind::kFloat) return Float(std::fabs(input.real));
  return Integer(input.AsInt() < 0 ? -input.AsInt() : input.AsInt());
}

TANDEM_FILTER(FilterRound) {
  ASSIGN_OR_RETURN(const auto bound, Bind("round", args, {"precision", "method"}));
  ASSIGN_OR_RETURN(const int64_t precision, ToIndex(bound[0], "precision", 0));
  ASSIGN_OR_RETURN(const std::string_view method, ToString(bound[1], "method", "common"));
  if (!input.IsNumber()) {
    return InvalidArgumentError("round() needs a number, not " + std::string(TypeName(input)));
  }
  if (precision < -30 || precision > 30) return InvalidArgumentError("round() precision");
  if (method == "common") {
    if (input.IsInteger() && precision >= 0) return Integer(input.AsInt());
    return Float(RoundTo(input.AsDouble(), static_cast<int>(precision)));
  }
  if (method != "ceil" && method != "floor") {
    return InvalidArgumentError("method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.AsDouble() * scale;
  return Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

TANDEM_FILTER(FilterFileSize) {
  ASSIGN_OR_RETURN(const auto bound, Bind("filesizeformat", args, {"binary"}));
  ASSIGN_OR_RETURN(const bool binary, Flag(bound[0], false));
  ASSIGN_OR_RETURN(const Value number, FilterFloat(interpreter, input, {}));
  const double bytes = number.AsDouble();
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Text("1 Byte");
  if (bytes < base) {
    return interpreter.String(FormatInt(static_cast<Int>(std::max(bytes, -1e30))) + " Bytes");
  }
  static constexpr std::array<std::string_view, 8> kPrefixes = {"k", "M", "G", "T",
                                                                "P", "E", "Z", "Y"};
  double unit = base;
  size_t i = 0;
  while (i + 1 < kPrefixes.size() && bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  ASSIGN_OR_RETURN(std::string text, PercentFormat("%.1f", {Float(bytes / unit)}, Value()));
  std::string prefix(kPrefixes[i]);
  if (binary) prefix = (prefix == "k" ? "K" : prefix) + "i";
  return interpreter.String(text + " " + prefix + "B");
}

// --- sequences ---

TANDEM_FILTER(FilterLength) {
  ASSIGN_OR_RETURN(const int64_t length, Length(input));
  return Integer(length);
}

TANDEM_FILTER(FilterList) {
  ASSIGN_OR_RETURN(std::vector<Value> items, interpreter.Items(input));
  return NewList(interpreter, std::move(items));
}

TANDEM_FILTER(FilterFirst) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  if (items.empty()) return interpreter.heap().Undefined("No first item, sequence was empty.");
  return items.front();
}

TANDEM_FILTER(FilterLast) {
  if (input.kind == Kind::kGenerator) {
    return InvalidArgumentError("'generator' object is not reversible");
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  if (items.empty()) return interpreter.heap().Undefined("No last item, sequence was empty.");
  return items.back();
}

TANDEM_FILTER(FilterReverse) {
  ASSIGN_OR_RETURN(std::vector<Value> items, interpreter.Items(input));
  std::reverse(items.begin(), items.end());
  if (!input.IsString()) return NewGenerator(interpreter, std::move(items));
  std::string text;
  for (const Value& item : items) text += item.View();
  return interpreter.String(std::move(text));
}

TANDEM_FILTER(FilterJoin) {
  ASSIGN_OR_RETURN(const auto bound, Bind("join", args, {"d", "attribute"}));
  std::string_view separator;
  if (bound[0].IsGiven()) {
    ASSIGN_OR_RETURN(separator, interpreter.Str(bound[0]));
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const Value item, AttributePath(interpreter, items[i], bound[1], Value()));
    ASSIGN_OR_RETURN(const std::string_view part, interpreter.Str(item));
    RETURN_IF_ERROR(interpreter.heap().Reserve(
        static_cast<int64_t>(text.size() + separator.size() + part.size())));
    if (i > 0) text += separator;
    text += part;
  }
  return interpreter.String(std::move(text));
}

TANDEM_FILTER(FilterSort) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind("sort", args, {"reverse", "case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const bool reverse, Flag(bound[0], false));
  ASSIGN_OR_RETURN(const bool case_sensitive, Flag(bound[1], false));
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   WithKeys(interpreter, items, bound[2], case_sensitive));
  RETURN_IF_ERROR(SortByKey(interpreter, reverse, &keyed));
  std::vector<Value> sorted;
  for (const Keyed& entry : keyed) sorted.push_back(entry.item);
  return NewList(interpreter, std::move(sorted));
}

TANDEM_FILTER(FilterDictSort) {
  ASSIGN_OR_RETURN(const auto bound, Bind("dictsort", args, {"case_sensitive", "by", "reverse"}));
  ASSIGN_OR_RETURN(const bool case_sensitive, Flag(bound[0], false));
  ASSIGN_OR_RETURN(const std::string_view by, ToString(bound[1], "by", "key"));
  ASSIGN_OR_RETURN(const bool reverse, Flag(bound[2], false));
  if (by != "key" && by != "value") {
    return InvalidArgumentError("You can only sort by either \"key\" or \"value\"");
  }
  if (!input.IsDict()) {
    return InvalidArgumentError("dictsort() needs a mapping, not " + std::string(TypeName(input)));
  }
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict->items) {
    pairs.push_back(interpreter.heap().NewSequence(Kind::kTuple, {key, value}));
  }
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   WithKeys(interpreter, pairs, Integer(by == "key" ? 0 : 1), case_sensitive));
  RETURN_IF_ERROR(SortByKey(interpreter, reverse, &keyed));
  std::vector<Value> sorted;
  for (const Keyed& entry : keyed) sorted.push_back(entry.item);
  return NewList(interpreter, std::move(sorted));
}

TANDEM_FILTER(FilterUnique) {
  ASSIGN_OR_RETURN(const auto bound, Bind("unique", args, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const bool case_sensitive, Flag(bound[0], false));
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                   WithKeys(interpreter, items, bound[1], case_sensitive));
  std::vector<Value> keys;
  std::vector<Value> kept;
  for (const Keyed& entry : keyed) {
    if (!IsHashable(entry.key)) {
      return InvalidArgumentError("unhashable type: '" + std::string(TypeName(entry.key)) + "'");
    }
    RETURN_IF_ERROR(interpreter.CountSteps(static_cast<int64_t>(keys.size()) / 8));
    const bool seen = std::any_of(keys.begin(), keys.end(),
                                  [&](const Value& key) { return IsEqual(key, entry.key); });
    if (seen) continue;
    keys.push_back(entry.key);
    kept.push_back(entry.item);
  }
  return NewGenerator(interpreter, std::move(kept));
}

TANDEM_FILTER(FilterGroupBy) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind("groupby", args, {"attribute", "default", "case_sensitive"}, 1));
  ASSIGN_OR_RETURN(const bool case_sensitive, Flag(bound[2], false));
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, AttributePath(interpreter, item, bound[0], bound[1]));
    if (!case_sensitive && key.IsString()) key = interpreter.String(Lower(key.View()));
    keyed.push_back({key, item});
  }
  RETURN_IF_ERROR(SortByKey(interpreter, false, &keyed));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < keyed.size() && IsEqual(keyed[end].key, keyed[begin].key); ++end) {
      members.push_back(keyed[end].item);
    }
    // The group is called by its first member's own spelling.
    ASSIGN_OR_RETURN(const Value name,
                     AttributePath(interpreter, members.front(), bound[0], bound[1]));
    ASSIGN_OR_RETURN(const Value list, NewList(interpreter, std::move(members)));
    groups.push_back(interpreter.heap().NewSequence(Kind::kTuple, {name, list}, "group"));
    begin = end;
  }
  return NewList(interpreter, std::move(groups));
}

TANDEM_FILTER(FilterSum) {
  ASSIGN_OR_RETURN(const auto bound, Bind("sum", args, {"attribute", "start"}));
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  Value sum = bound[1].IsGiven() ? bound[1] : Integer(0);
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value value, AttributePath(interpreter, item, bound[0], Value()));
    ASSIGN_OR_RETURN(sum, ApplyBinary(interpreter, "+", sum, value));
  }
  return sum;
}

StatusOr<Value> Extreme(Interpreter& interpreter, const Value& input, const Arguments& args,
                        int sign) {
  ASSIGN_OR_RETURN(const auto bound, Bind("max", args, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const bool case_sensitive, Flag(bound[0], false));
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  if (items.empty()) {
    return interpreter.heap().Undefined("No aggregated item, sequence was empty.");
  }
  ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                   WithKeys(interpreter, items, bound[1], case_sensitive));
  const Keyed* best = &keyed[0];
  for (const Keyed& entry : keyed) {
    ASSIGN_OR_RETURN(const int order, Compare(entry.key, best->key));
    if (order * sign > 0) best = &entry;
  }
  return best->item;
}
TANDEM_FILTER(FilterMax) { return Extreme(interpreter, input, args, 1); }
TANDEM_FILTER(FilterMin) { return Extreme(interpreter, input, args, -1); }

TANDEM_FILTER(FilterBatch) {
  ASSIGN_OR_RETURN(const auto bound, Bind("batch", args, {"linecount", "fill_with"}, 1));
  ASSIGN_OR_RETURN(const int64_t size, ToIndex(bound[0], "linecount", 1));
  if (size < 1 || size > kMaxWidth) return InvalidArgumentError("batch() of such a size");
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  std::vector<Value> batches;
  for (size_t begin = 0; begin < items.size(); begin += static_cast<size_t>(size)) {
    const size_t end = std::min(items.size(), begin + static_cast<size_t>(size));
    std::vector<Value> batch(items.begin() + static_cast<std::ptrdiff_t>(begin),
                             items.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound[1].IsGiven() && !bound[1].IsNone()) batch.resize(static_cast<size_t>(size), bound[1]);
    ASSIGN_OR_RETURN(const Value list, NewList(interpreter, std::move(batch)));
    batches.push_back(list);
  }
  return NewGenerator(interpreter, std::move(batches));
}

TANDEM_FILTER(FilterSlice) {
  ASSIGN_OR_RETURN(const auto bound, Bind("slice", args, {"slices", "fill_with"}, 1));
  ASSIGN_OR_RETURN(const int64_t count, ToIndex(bound[0], "slices", 1));
  if (count < 1 || count > kMaxWidth) return InvalidArgumentError("slice() into such a number");
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  const int64_t per_slice = static_cast<int64_t>(items.size()) / count;
  const int64_t with_extra = static_cast<int64_t>(items.size()) % count;
  std::vector<Value> slices;
  auto next = items.begin();
  for (int64_t i = 0; i < count; ++i) {
    const auto end = next + per_slice + (i < with_extra ? 1 : 0);
    std::vector<Value> slice(next, end);
    next = end;
    const bool fill = bound[1].IsGiven() && !bound[1].IsNone() && i >= with_extra;
    if (fill) slice.push_back(bound[1]);
    ASSIGN_OR_RETURN(const Value list, NewList(interpreter, std::move(slice)));
    slices.push_back(list);
  }
  return NewGenerator(interpreter, std::move(slices));
}

// --- by attribute, test or filter ---

TANDEM_FILTER(FilterMap) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  std::vector<Value> mapped;
  mapped.reserve(items.size());
  if (args.positional.empty()) {
    ASSIGN_OR_RETURN(const auto bound, Bind("map", args, {"attribute", "default"}, 1));
    for (const Value& item : items) {
      ASSIGN_OR_RETURN(const Value value, AttributePath(interpreter, item, bound[0], bound[1]));
      mapped.push_back(value);
    }
    return NewGenerator(interpreter, std::move(mapped));
  }
  ASSIGN_OR_RETURN(const std::string_view name, ToString(args.positional[0], "filter name", ""));
  Arguments rest = args;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value value, interpreter.CallFilter(name, item, rest));
    mapped.push_back(value);
  }
  return NewGenerator(interpreter, std::move(mapped));
}

// select, reject, selectattr, rejectattr: keeps the items whose value (or attribute) is `wanted`.
StatusOr<Value> Choose(Interpreter& interpreter, const Value& input, const Arguments& args,
                       bool by_attribute, bool wanted) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  Arguments rest = args;
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty())
      return InvalidArgumentError("Missing parameter for attribute name");
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string_view test;
  if (!rest.positional.empty()) {
    ASSIGN_OR_RETURN(test, ToString(rest.positional[0], "test name", ""));
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> kept;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value value, AttributePath(interpreter, item, attribute, Value()));
    bool holds = IsTrue(value);
    if (!test.empty()) {
      ASSIGN_OR_RETURN(holds, interpreter.CallTest(test, value, rest));
    }
    if (holds == wanted) kept.push_back(item);
  }
  return NewGenerator(interpreter, std::move(kept));
}
TANDEM_FILTER(FilterSelect) { return Choose(interpreter, input, args, false, true); }
TANDEM_FILTER(FilterReject) { return Choose(interpreter, input, args, false, false); }
TANDEM_FILTER(FilterSelectAttr) { return Choose(interpreter, input, args, true, true); }
TANDEM_FILTER(FilterRejectAttr) { return Choose(interpreter, input, args, true, false); }

// --- the rest ---

TANDEM_FILTER(FilterDefault) {
  ASSIGN_OR_RETURN(const auto bound, Bind("default", args, {"default_value", "boolean"}));
  ASSIGN_OR_RETURN(const bool boolean, Flag(bound[1], false));
  const bool replace = input.IsUndefined() || (boolean && !IsTrue(input));
  if (!replace) return input;
  return bound[0].IsGiven() ? bound[0] : Text("");
}

TANDEM_FILTER(FilterItems) {
  if (input.IsUndefined()) return NewGenerator(interpreter, {});
  if (!input.IsDict()) return InvalidArgumentError("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict->items) {
    pairs.push_back(interpreter.heap().NewSequence(Kind::kTuple, {key, value}));
  }
  return NewGenerator(interpreter, std::move(pairs));
}

TANDEM_FILTER(FilterAttr) {
  ASSIGN_OR_RETURN(const auto bound, Bind("attr", args, {"name"}, 1));
  ASSIGN_OR_RETURN(const std::string_view name, interpreter.Str(bound[0]));
  if (input.IsDict() && FindMethod(input, name) == nullptr) {
    return interpreter.heap().Undefined("'dict object' has no attribute '" + std::string(name) +
                                        "'");
  }
  return interpreter.GetAttr(input, name);
}

TANDEM_FILTER(FilterPPrint) {
  RETURN_IF_ERROR(interpreter.CountSteps(Weight(input) / 32));
  std::string text;
  AppendRepr(input, &text);
  return interpreter.String(std::move(text));
}

#undef TANDEM_FILTER

constexpr std::array<NamedFunction, 50> kFilters = {{
    {"abs", FilterAbs},
    {"attr", FilterAttr},
    {"batch", FilterBatch},
    {"capitalize", FilterCapitalize},
    {"center", FilterCenter},
    {"count", FilterLength},
    {"d", FilterDefault},
    {"default", FilterDefault},
    {"dictsort", FilterDictSort},
    {"e", FilterEscape},
    {"escape", FilterEscape},
    {"filesizeformat", FilterFileSize},
    {"first", FilterFirst},
    {"float", FilterFloat},
    {"forceescape", FilterEscape},
    {"format", FilterFormat},
    {"groupby", FilterGroupBy},
    {"indent", FilterIndent},
    {"int", FilterInt},
    {"items", FilterItems},
    {"join", FilterJoin},
    {"last", FilterLast},
    {"length", FilterLength},
    {"list", FilterList},
    {"lower", FilterLower},
    {"map", FilterMap},
    {"max", FilterMax},
    {"min", FilterMin},
    {"pprint", FilterPPrint},
    {"reject", FilterReject},
    {"rejectattr", FilterRejectAttr},
    {"replace", FilterReplace},
    {"reverse", FilterReverse},
    {"round", FilterRound},
    {"safe", FilterString},
    {"select", FilterSelect},
    {"selectattr", FilterSelectAttr},
    {"slice", FilterSlice},
    {"sort", FilterSort},
    {"string", FilterString},
    {"striptags", FilterStripTags},
    {"sum", FilterSum},
    {"title", FilterTitle},
    {"tojson", FilterToJson},
    {"trim", FilterTrim},
    {"truncate", FilterTruncate},
    {"unique", FilterUnique},
    {"upper", FilterUpper},
    {"urlencode", FilterUrlEncode},
    {"wordcount", FilterWordCount},
}};

}  // namespace

Function FindFilter(std::string_view name) { return FindFunction(kFilters, name); }

}  // namespace tandem::jinja
