// The methods of Python's str, dict and list that change nothing.

#include <algorithm>
#include <array>

#include "common/utf8.h"
#include "frontend/jinja/builtins.h"
#include "frontend/jinja/format.h"
#include "frontend/jinja/interpreter.h"
#include "frontend/jinja/text.h"

namespace tandem::jinja {
namespace {

#define TANDEM_METHOD(name)                                       \
  StatusOr<Value> name([[maybe_unused]] Interpreter& interpreter, \
                       [[maybe_unused]] const Value& self, [[maybe_unused]] const Arguments& args)

// --- str ---

TANDEM_METHOD(StrUpper) { return interpreter.String(Upper(self.View())); }
TANDEM_METHOD(StrLower) { return interpreter.String(Lower(self.View())); }
TANDEM_METHOD(StrTitle) { return interpreter.String(Title(self.View())); }
TANDEM_METHOD(StrCapitalize) { return interpreter.String(Capitalize(self.View())); }
TANDEM_METHOD(StrSwapCase) { return interpreter.String(SwapCase(self.View())); }

StatusOr<Value> StripSides(const Value& self, const Arguments& args, bool left, bool right) {
  ASSIGN_OR_RETURN(const auto bound, Bind("strip", args, {"chars"}));
  if (!bound[0].IsGiven() || bound[0].IsNone()) return Text(Strip(self.View(), {}, left, right));
  ASSIGN_OR_RETURN(const std::string_view chars, ToString(bound[0], "chars", ""));
  return Text(chars.empty() ? self.View() : Strip(self.View(), chars, left, right));
}
TANDEM_METHOD(StrStrip) { return StripSides(self, args, true, true); }
TANDEM_METHOD(StrLStrip) { return StripSides(self, args, true, false); }
TANDEM_METHOD(StrRStrip) { return StripSides(self, args, false, true); }

Value NewTextList(Interpreter& interpreter, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Text(part));
  return interpreter.heap().NewSequence(Kind::kList, std::move(items));
}

StatusOr<Value> SplitSide(Interpreter& interpreter, const Value& self, const Arguments& args,
                          bool from_right) {
  ASSIGN_OR_RETURN(const auto bound, Bind("split", args, {"sep", "maxsplit"}));
  const bool spaces = !bound[0].IsGiven() || bound[0].IsNone();
  ASSIGN_OR_RETURN(const std::string_view separator,
                   ToString(spaces ? Value() : bound[0], "sep", ""));
  if (!spaces && separator.empty()) return InvalidArgumentError("empty separator");
  ASSIGN_OR_RETURN(const int64_t max_splits, ToIndex(bound[1], "maxsplit", -1));
  return NewTextList(interpreter, SplitText(self.View(), separator, max_splits, from_right));
}
TANDEM_METHOD(StrSplit) { return SplitSide(interpreter, self, args, false); }
TANDEM_METHOD(StrRSplit) { return SplitSide(interpreter, self, args, true); }

TANDEM_METHOD(StrSplitLines) {
  ASSIGN_OR_RETURN(const auto bound, Bind("splitlines", args, {"keepends"}));
  const bool keep = bound[0].IsGiven() && IsTrue(bound[0]);
  return NewTextList(interpreter, SplitLines(self.View(), keep));
}

StatusOr<Value> PartitionSide(Interpreter& interpreter, const Value& self, const Arguments& args,
                              bool from_right) {
  ASSIGN_OR_RETURN(const auto bound, Bind("partition", args, {"sep"}, 1));
  ASSIGN_OR_RETURN(const std::string_view separator, ToString(bound[0], "sep", ""));
  if (separator.empty()) return InvalidArgumentError("empty separator");
  const std::string_view text = self.View();
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  std::vector<Value> parts;
  if (at == std::string_view::npos) {
    parts = {Text(text), Text(""), Text("")};
    if (from_right) std::swap(parts[0], parts[2]);
  } else {
    parts = {Text(text.substr(0, at)), Text(separator), Text(text.substr(at + separator.size()))};
  }
  return interpreter.heap().NewSequence(Kind::kTuple, std::move(parts));
}
TANDEM_METHOD(StrPartition) { return PartitionSide(interpreter, self, args, false); }
TANDEM_METHOD(StrRPartition) { return PartitionSide(interpreter, self, args, true); }

// The part of the text that [start, end) names, and where it begins in bytes.
struct Window {
  std::string_view text;
  size_t begin;
};
StatusOr<Window> ToWindow(const Value& self, const Value& start, const Value& end) {
  const std::string_view text = self.View();
  if (!start.IsGiven() && !end.IsGiven()) return Window{text, 0};
  const auto size = static_cast<int64_t>(CountUtf8(text));
  ASSIGN_OR_RETURN(int64_t first, ToIndex(start.IsNone() ? Value() : start, "start", 0));
  ASSIGN_OR_RETURN(int64_t last, ToIndex(end.IsNone() ? Value() : end, "end", size));
  if (first < 0) first = std::max<int64_t>(first + size, 0);
  if (last < 0) last = std::max<int64_t>(last + size, 0);
  const size_t begin = BytePosition(text, static_cast<size_t>(first));
  const size_t stop = BytePosition(text, static_cast<size_t>(std::max(first, last)));
  return Window{text.substr(begin, stop - begin), begin};
}

StatusOr<Int> FindPart(const Value& self, const Arguments& args, bool from_right) {
  ASSIGN_OR_RETURN(const auto bound, Bind("find", args, {"sub", "start", "end"}, 1));
  ASSIGN_OR_RETURN(const std::string_view part, ToString(bound[0], "sub", ""));
  ASSIGN_OR_RETURN(const Window window, ToWindow(self, bound[1], bound[2]));
  const size_t at = from_right ? window.text.rfind(part) : window.text.find(part);
  if (at == std::string_view::npos) return Int{-1};
  return static_cast<Int>(CountUtf8(self.View().substr(0, window.begin + at)));
}
StatusOr<Value> FindSide(const Value& self, const Arguments& args, bool from_right, bool must) {
  ASSIGN_OR_RETURN(const Int at, FindPart(self, args, from_right));
  if (must && at < 0) return InvalidArgumentError("substring not found");
  return Integer(at);
}
TANDEM_METHOD(StrFind) { return FindSide(self, args, false, false); }
TANDEM_METHOD(StrRFind) { return FindSide(self, args, true, false); }
TANDEM_METHOD(StrIndex) { return FindSide(self, args, false, true); }
TANDEM_METHOD(StrRIndex) { return FindSide(self, args, true, true); }

StatusOr<Value> HasAffix(const Value& self, const Arguments& args, bool at_end) {
  ASSIGN_OR_RETURN(const auto bound, Bind("startswith", args, {"prefix", "start", "end"}, 1));
  ASSIGN_OR_RETURN(const Window window, ToWindow(self, bound[1], bound[2]));
  std::vector<Value> affixes = {bound[0]};
  if (bound[0].kind == Kind::kTuple) affixes = bound[0].sequence->items;
  bool found = false;
  for (const Value& value : affixes) {
    ASSIGN_OR_RETURN(const std::string_view affix, ToString(value, "prefix", ""));
    found = found || (at_end ? window.text.ends_with(affix) : window.text.starts_with(affix));
  }
  return Bool(found);
}
TANDEM_METHOD(StrStartsWith) { return HasAffix(self, args, false); }
TANDEM_METHOD(StrEndsWith) { return HasAffix(self, args, true); }

StatusOr<Value> RemoveAffix(const Value& self, const Arguments& args, bool at_end) {
  ASSIGN_OR_RETURN(const auto bound, Bind("removeprefix", args, {"prefix"}, 1));
  ASSIGN_OR_RETURN(const std::string_view affix, ToString(bound[0], "prefix", ""));
  std::string_view text = self.View();
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return Text(text);
}
TANDEM_METHOD(StrRemovePrefix) { return RemoveAffix(self, args, false); }
TANDEM_METHOD(StrRemoveSuffix) { return RemoveAffix(self, args, true); }

TANDEM_METHOD(StrReplace) {
  ASSIGN_OR_RETURN(const auto bound, Bind("replace", args, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const std::string_view from, ToString(bound[0], "old", ""));
  ASSIGN_OR_RETURN(const std::string_view to, ToString(bound[1], "new", ""));
  ASSIGN_OR_RETURN(const int64_t count, ToIndex(bound[2], "count", -1));
  RETURN_IF_ERROR(interpreter.heap().Reserve(
      static_cast<int64_t>(CountOccurrences(self.View(), from) * to.size() + self.text.size)));
  return interpreter.String(ReplaceAll(self.View(), from, to, count));
}

TANDEM_METHOD(StrCount) {
  ASSIGN_OR_RETURN(const auto bound, Bind("count", args, {"sub", "start", "end"}, 1));
  ASSIGN_OR_RETURN(const std::string_view part, ToString(bound[0], "sub", ""));
  ASSIGN_OR_RETURN(const Window window, ToWindow(self, bound[1], bound[2]));
  return Integer(static_cast<Int>(CountOccurrences(window.text, part)));
}

TANDEM_METHOD(StrJoin) {
  ASSIGN_OR_RETURN(const auto bound, Bind("join", args, {"iterable"}, 1));
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(bound[0]));
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string_view part, ToString(items[i], "item", ""));
    RETURN_IF_ERROR(interpreter.heap().Reserve(
        static_cast<int64_t>(text.size() + self.text.size + part.size())));
    if (i > 0) text += self.View();
    text += part;
  }
  return interpreter.String(std::move(text));
}

template <bool (*Has)(char32_t)>
StatusOr<Value> AllChars(Interpreter&, const Value& self, const Arguments&) {
  const std::string_view text = self.View();
  for (size_t pos = 0; pos < text.size();) {
    if (!Has(NextUtf8(text, &pos))) return Bool(false);
  }
  return Bool(!text.empty());
}
TANDEM_METHOD(StrIsUpper) { return Bool(IsUpperText(self.View())); }
TANDEM_METHOD(StrIsLower) { return Bool(IsLowerText(self.View())); }
TANDEM_METHOD(StrIsTitle) {
  return Bool(!self.View().empty() && Title(self.View()) == self.View() &&
              Lower(self.View()) != self.View());
}

// ljust, rjust, center: `side` is where the fill goes.
StatusOr<Value> Justify(Interpreter& interpreter, const Value& self, const Arguments& args,
                        char side) {
  ASSIGN_OR_RETURN(const auto bound, Bind("just", args, {"width", "fillchar"}, 1));
  ASSIGN_OR_RETURN(const int64_t width, ToIndex(bound[0], "width", 0));
  ASSIGN_OR_RETURN(const std::string_view fill, ToString(bound[1], "fillchar", " "));
  if (CountUtf8(fill) != 1) {
    return InvalidArgumentError("The fill character must be exactly one character long");
  }
  if (width > kMaxWidth) return ResourceExhaustedError("text padded to more than 10000");
  const auto size = static_cast<int64_t>(CountUtf8(self.View()));
  if (width <= size) return self;
  const int64_t missing = width - size;
  const int64_t left = side == 'l'   ? 0
                       : side == 'r' ? missing
                                     : missing / 2 + (missing & width & 1);
  return interpreter.String(
      Pad(self.View(), static_cast<size_t>(left), static_cast<size_t>(missing - left), fill));
}
TANDEM_METHOD(StrLJust) { return Justify(interpreter, self, args, 'l'); }
TANDEM_METHOD(StrRJust) { return Justify(interpreter, self, args, 'r'); }
TANDEM_METHOD(StrCenter) { return Justify(interpreter, self, args, 'c'); }

TANDEM_METHOD(StrZFill) {
  ASSIGN_OR_RETURN(const auto bound, Bind("zfill", args, {"width"}, 1));
  ASSIGN_OR_RETURN(const int64_t width, ToIndex(bound[0], "width", 0));
  if (width > kMaxWidth) return ResourceExhaustedError("text padded to more than 10000");
  const std::string_view text = self.View();
  const auto size = static_cast<int64_t>(CountUtf8(text));
  if (width <= size) return self;
  const size_t sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
  return interpreter.String(std::string(text.substr(0, sign)) +
                            std::string(static_cast<size_t>(width - size), '0') +
                            std::string(text.substr(sign)));
}

TANDEM_METHOD(StrFormat) {
  int64_t weight = 0;
  for (const Value& value : args.positional) weight += Weight(value);
  RETURN_IF_ERROR(interpreter.CountSteps(weight / 32));
  ASSIGN_OR_RETURN(std::string text, BraceFormat(self.View(), args));
  RETURN_IF_ERROR(interpreter.heap().Reserve(static_cast<int64_t>(text.size())));
  return interpreter.String(std::move(text));
}

// --- dict ---

TANDEM_METHOD(DictGet) {
  ASSIGN_OR_RETURN(const auto bound, Bind("get", args, {"key", "default"}, 1));
  if (const Value* value = self.dict->Find(bound[0]); value != nullptr) return *value;
  return bound[1].IsGiven() ? bound[1] : None();
}

TANDEM_METHOD(DictKeys) {
  ASSIGN_OR_RETURN(std::vector<Value> keys, interpreter.Items(self));
  return interpreter.heap().NewSequence(Kind::kView, std::move(keys), "dict_keys");
}

TANDEM_METHOD(DictValues) {
  std::vector<Value> values;
  for (const auto& item : self.dict->items) values.push_back(item.second);
  return interpreter.heap().NewSequence(Kind::kView, std::move(values), "dict_values");
}

TANDEM_METHOD(DictItems) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict->items) {
    pairs.push_back(interpreter.heap().NewSequence(Kind::kTuple, {key, value}));
  }
  return interpreter.heap().NewSequence(Kind::kView, std::move(pairs), "dict_items");
}

TANDEM_METHOD(Copy) { return self; }  // nothing can change either of them

// --- list and tuple ---

TANDEM_METHOD(ListIndex) {
  ASSIGN_OR_RETURN(const auto bound, Bind("index", args, {"value"}, 1));
  const auto& items = self.sequence->items;
  const auto it = std::find_if(items.begin(), items.end(),
                               [&](const Value& item) { return IsEqual(item, bound[0]); });
  RETURN_IF_ERROR(interpreter.CountSteps(self.sequence->weight / 64));
  if (it == items.end()) return InvalidArgumentError("the value is not in the list");
  return Integer(it - items.begin());
}

TANDEM_METHOD(ListCount) {
  ASSIGN_OR_RETURN(const auto bound, Bind("count", args, {"value"}, 1));
  RETURN_IF_ERROR(interpreter.CountSteps(self.sequence->weight / 64));
  const auto& items = self.sequence->items;
  return Integer(std::count_if(items.begin(), items.end(),
                               [&](const Value& item) { return IsEqual(item, bound[0]); }));
}

#undef TANDEM_METHOD

constexpr std::array<NamedFunction, 39> kStrMethods = {{
    {"capitalize", StrCapitalize},
    {"casefold", StrLower},
    {"center", StrCenter},
    {"count", StrCount},
    {"endswith", StrEndsWith},
    {"find", StrFind},
    {"format", StrFormat},
    {"index", StrIndex},
    {"isalnum", AllChars<IsAlnumChar>},
    {"isalpha", AllChars<IsAlphaChar>},
    {"isdecimal", AllChars<IsDigitChar>},
    {"isdigit", AllChars<IsDigitChar>},
    {"islower", StrIsLower},
    {"isnumeric", AllChars<IsDigitChar>},
    {"isspace", AllChars<IsSpaceChar>},
    {"istitle", StrIsTitle},
    {"isupper", StrIsUpper},
    {"join", StrJoin},
    {"ljust", StrLJust},
    {"lower", StrLower},
    {"lstrip", StrLStrip},
    {"partition", StrPartition},
    {"removeprefix", StrRemovePrefix},
    {"removesuffix", StrRemoveSuffix},
    {"replace", StrReplace},
    {"rfind", StrRFind},
    {"rindex", StrRIndex},
    {"rjust", StrRJust},
    {"rpartition", StrRPartition},
    {"rsplit", StrRSplit},
    {"rstrip", StrRStrip},
    {"split", StrSplit},
    {"splitlines", StrSplitLines},
    {"startswith", StrStartsWith},
    {"strip", StrStrip},
    {"swapcase", StrSwapCase},
    {"title", StrTitle},
    {"upper", StrUpper},
    {"zfill", StrZFill},
}};

constexpr std::array<NamedFunction, 5> kDictMethods = {{
    {"copy", Copy},
    {"get", DictGet},
    {"items", DictItems},
    {"keys", DictKeys},
    {"values", DictValues},
}};

constexpr std::array<NamedFunction, 3> kListMethods = {{
    {"copy", Copy},
    {"count", ListCount},
    {"index", ListIndex},
}};

}  // namespace

Function FindMethod(const Value& object, std::string_view name) {
  switch (object.kind) {
    case Kind::kString:
      return FindFunction(kStrMethods, name);
    case Kind::kDict:
      return FindFunction(kDictMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return name == "copy" ? nullptr : FindFunction(kListMethods, name);
    case Kind::kList:
      return FindFunction(kListMethods, name);
    default:
      return nullptr;
  }
}

bool IsMutatingMethod(const Value& object, std::string_view name) {
  static constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault",
                                                            "update"};
  static constexpr std::array<std::string_view, 8> kList = {"append", "clear",  "extend",  "insert",
                                                            "pop",    "remove", "reverse", "sort"};
  if (object.IsDict()) return std::find(kDict.begin(), kDict.end(), name) != kDict.end();
  if (object.kind == Kind::kList) {
    return std::find(kList.begin(), kList.end(), name) != kList.end();
  }
  return false;
}

}  // namespace tandem::jinja
