// Jinja's filters over lists and dicts, as jinja2 3.1 defines them.

#include <algorithm>
#include <array>

#include "frontend/jinja/filter.h"
#include "frontend/jinja/format.h"
#include "frontend/jinja/interpreter.h"
#include "frontend/jinja/text.h"

namespace tandem::jinja {
namespace {

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

// The key that a value is sorted or compared by: the attribute, in lower case unless case counts.
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

// Equal keys need no order: items that lack the attribute stay where they are.
StatusOr<int> CompareKeys(const Value& left, const Value& right) {
  if (IsEqual(left, right)) return 0;
  return Compare(left, right);
}

Status SortByKey(Interpreter& interpreter, bool reverse, std::vector<Keyed>* keyed) {
  Status status;
  int64_t cost = 0;
  // Equal keys keep their order, also in reverse.
  const auto less = [&](const Keyed& a, const Keyed& b) {
    if (!status.ok()) return false;
    cost += 1 + std::min(Weight(a.key), Weight(b.key)) / 32;
    const auto order = reverse ? CompareKeys(b.key, a.key) : CompareKeys(a.key, b.key);
    if (!order.ok()) status = order.status();
    return order.ok() && *order < 0;
  };
  std::stable_sort(keyed->begin(), keyed->end(), less);
  RETURN_IF_ERROR(status);
  return interpreter.CountSteps(cost / 4);
}

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
  const bool reverse = Flag(bound[0], false);
  const bool case_sensitive = Flag(bound[1], false);
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   WithKeys(interpreter, items, bound[2], case_sensitive));
  RETURN_IF_ERROR(SortByKey(interpreter, reverse, &keyed));
  std::vector<Value> sorted;
  sorted.reserve(keyed.size());
  for (const Keyed& entry : keyed) sorted.push_back(entry.item);
  return NewList(interpreter, std::move(sorted));
}

TANDEM_FILTER(FilterDictSort) {
  ASSIGN_OR_RETURN(const auto bound, Bind("dictsort", args, {"case_sensitive", "by", "reverse"}));
  const bool case_sensitive = Flag(bound[0], false);
  ASSIGN_OR_RETURN(const std::string_view by, ToString(bound[1], "by", "key"));
  const bool reverse = Flag(bound[2], false);
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
  sorted.reserve(keyed.size());
  for (const Keyed& entry : keyed) sorted.push_back(entry.item);
  return NewList(interpreter, std::move(sorted));
}

TANDEM_FILTER(FilterUnique) {
  ASSIGN_OR_RETURN(const auto bound, Bind("unique", args, {"case_sensitive", "attribute"}));
  const bool case_sensitive = Flag(bound[0], false);
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
  const bool case_sensitive = Flag(bound[2], false);
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
    // The group's name is its first member's own spelling.
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
  const bool case_sensitive = Flag(bound[0], false);
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(input));
  if (items.empty()) {
    return interpreter.heap().Undefined("No aggregated item, sequence was empty.");
  }
  ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                   WithKeys(interpreter, items, bound[1], case_sensitive));
  const Keyed* best = &keyed[0];
  for (size_t i = 1; i < keyed.size(); ++i) {
    ASSIGN_OR_RETURN(const int order, Compare(keyed[i].key, best->key));
    if (order * sign > 0) best = &keyed[i];
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

TANDEM_FILTER(FilterMap) {
  if (!IsTrue(input)) return NewGenerator(interpreter, {});  // none as well as an empty list
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
  if (!IsTrue(input)) return NewGenerator(interpreter, {});
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

TANDEM_FILTER(FilterItems) {
  if (input.IsUndefined()) return NewGenerator(interpreter, {});
  if (!input.IsDict()) return InvalidArgumentError("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict->items) {
    pairs.push_back(interpreter.heap().NewSequence(Kind::kTuple, {key, value}));
  }
  return NewGenerator(interpreter, std::move(pairs));
}

constexpr std::array<NamedFunction, 22> kSequenceFilters = {{
    {"batch", FilterBatch},     {"count", FilterLength},    {"dictsort", FilterDictSort},
    {"first", FilterFirst},     {"groupby", FilterGroupBy}, {"items", FilterItems},
    {"join", FilterJoin},       {"last", FilterLast},       {"length", FilterLength},
    {"list", FilterList},       {"map", FilterMap},         {"max", FilterMax},
    {"min", FilterMin},         {"reject", FilterReject},   {"rejectattr", FilterRejectAttr},
    {"reverse", FilterReverse}, {"select", FilterSelect},   {"selectattr", FilterSelectAttr},
    {"slice", FilterSlice},     {"sort", FilterSort},       {"sum", FilterSum},
    {"unique", FilterUnique},
}};

}  // namespace

Function FindSequenceFilter(std::string_view name) { return FindFunction(kSequenceFilters, name); }

}  // namespace tandem::jinja
