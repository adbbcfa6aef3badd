#include "frontend/jinja/value.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "frontend/jinja/text.h"

namespace tandem::jinja {
namespace {

// Rough costs of an object on the heap, for the limit.
constexpr int64_t kObjectBytes = 64;
constexpr int64_t kItemBytes = sizeof(Value);

int Order(double left, double right) { return left < right ? -1 : left > right ? 1 : 0; }

// An int and a double are compared as Python does for all values a template meets: exactly when the
// double is a whole number in range.
int CompareNumbers(const Value& left, const Value& right) {
  if (left.kind == Kind::kFloat || right.kind == Kind::kFloat) {
    return Order(left.AsDouble(), right.AsDouble());
  }
  const Int a = left.AsInt();
  const Int b = right.AsInt();
  return a < b ? -1 : a > b ? 1 : 0;
}

// An integer of more than 64 bits by its digits. One that we cannot compute with is a real number.
Value BigInteger(const std::vector<uint8_t>& digits) {
  const std::string text(digits.begin(), digits.end());
  if (const auto value = ParseInt(text, 10)) return Integer(*value);
  return Float(ParseFloat(text).value_or(0));
}

}  // namespace

Value None() {
  Value value;
  value.kind = Kind::kNone;
  return value;
}

Value Bool(bool boolean) {
  Value value;
  value.kind = Kind::kBool;
  value.boolean = boolean;
  return value;
}

Value Integer(Int integer) {
  Value value;
  value.kind = Kind::kInt;
  value.integer = integer;
  return value;
}

Value Float(double real) {
  Value value;
  value.kind = Kind::kFloat;
  value.real = real;
  return value;
}

Value Text(std::string_view text) {
  Value value;
  value.kind = Kind::kString;
  value.text = {text.data(), text.size()};
  return value;
}

const Value* Dict::Find(const Value& key) const {
  for (const auto& item : items) {
    if (IsEqual(item.first, key)) return &item.second;
  }
  return nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  for (const auto& item : items) {
    if (item.first.IsString() && item.first.View() == key) return &item.second;
  }
  return nullptr;
}

void Dict::Set(const Value& key, const Value& value) {
  for (auto& item : items) {
    if (IsEqual(item.first, key)) {
      item.second = value;
      return;
    }
  }
  items.emplace_back(key, value);
}

Value Heap::String(std::string text) {
  Charge(kObjectBytes + static_cast<int64_t>(text.size()));
  return Text(strings_.emplace_back(std::move(text)));
}

Value Heap::Undefined(std::string message) {
  Charge(kObjectBytes + static_cast<int64_t>(message.size()));
  Value value;
  value.message = &strings_.emplace_back(std::move(message));
  return value;
}

// Adds an item to the depth and weight of what holds it.
void Heap::Account(const Value& item, int* depth, int64_t* weight) {
  if (item.IsSequence()) *depth = std::max(*depth, item.sequence->depth + 1);
  if (item.IsDict()) *depth = std::max(*depth, item.dict->depth + 1);
  // A list that holds another one twice can weigh far more than it takes: l = [l, l] doubles.
  *weight += Weight(item);
  if (*depth > kMaxDepth || *weight > max_weight_) too_large_ = true;
}

Value Heap::NewSequence(Kind kind, std::vector<Value> items, std::string_view name) {
  Charge(kObjectBytes + kItemBytes * static_cast<int64_t>(items.size()));
  Sequence& sequence = sequences_.emplace_back();
  for (const Value& item : items) Account(item, &sequence.depth, &sequence.weight);
  sequence.items = std::move(items);
  sequence.name = name;
  Value value;
  value.kind = kind;
  value.sequence = &sequence;
  return value;
}

Value Heap::NewDict(Dict dict) {
  Charge(kObjectBytes + 2 * kItemBytes * static_cast<int64_t>(dict.items.size()));
  for (const auto& [key, item] : dict.items) {
    Account(key, &dict.depth, &dict.weight);
    Account(item, &dict.depth, &dict.weight);
  }
  Value value;
  value.kind = Kind::kDict;
  value.dict = &dicts_.emplace_back(std::move(dict));
  return value;
}

Value Heap::NewNamespace(Dict dict) {
  Charge(kObjectBytes + 2 * kItemBytes * static_cast<int64_t>(dict.items.size()));
  Value value;
  value.kind = Kind::kNamespace;
  value.dict = &dicts_.emplace_back(std::move(dict));
  return value;
}

Value Heap::NewCallable(std::string_view name, Function function, const Value& self) {
  Charge(kObjectBytes);
  Value value;
  value.kind = Kind::kCallable;
  value.callable = &callables_.emplace_back(Callable{name, function, self});
  return value;
}

Value Heap::FromJson(const nlohmann::ordered_json& json, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kMaxDepth) {
    too_large_ = true;
    return None();
  }
  switch (json.type()) {
    case Type::boolean:
      return Bool(json.get<bool>());
    case Type::number_integer:
      return Integer(json.get<int64_t>());
    case Type::number_unsigned:
      return Integer(json.get<uint64_t>());
    case Type::number_float:
      return Float(json.get<double>());
    case Type::binary:
      return BigInteger(json.get_binary());
    case Type::string:
      return Text(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(FromJson(item, depth + 1));
      return NewSequence(Kind::kList, std::move(items));
    }
    case Type::object: {
      Dict dict;
      dict.items.reserve(json.size());
      for (auto it = json.begin(); it != json.end(); ++it) {
        dict.items.emplace_back(Text(it.key()), FromJson(*it, depth + 1));
      }
      return NewDict(std::move(dict));
    }
    default:
      return None();
  }
}

Status Heap::Reserve(int64_t bytes) const {
  if (bytes <= left_) return OkStatus();
  return ResourceExhaustedError("the chat template builds more than its limit of memory");
}

int64_t Weight(const Value& value) {
  constexpr int64_t kLeaf = 8;
  if (value.IsString()) return kLeaf + static_cast<int64_t>(value.text.size);
  if (value.IsSequence()) return value.sequence->weight;
  if (value.IsDict()) return value.dict->weight;
  return kLeaf;
}

std::string_view TypeName(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
    case Kind::kView:
      return value.sequence->name;
    case Kind::kGenerator:
      return "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kCallable:
      return "function";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

bool IsTrue(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kString:
      return value.text.size != 0;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView:
      return !value.sequence->items.empty();
    case Kind::kDict:
      return !value.dict->items.empty();
    default:
      return true;
  }
}

bool IsEqual(const Value& left, const Value& right) {
  if (left.IsNumber() && right.IsNumber()) return CompareNumbers(left, right) == 0;
  if (left.kind != right.kind) return false;
  switch (left.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return left.View() == right.View();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return left.sequence == right.sequence ||
             std::equal(left.sequence->items.begin(), left.sequence->items.end(),
                        right.sequence->items.begin(), right.sequence->items.end(), IsEqual);
    case Kind::kDict: {
      if (left.dict == right.dict) return true;
      if (left.dict->items.size() != right.dict->items.size()) return false;
      return std::all_of(left.dict->items.begin(), left.dict->items.end(), [&](const auto& item) {
        const Value* other = right.dict->Find(item.first);
        return other != nullptr && IsEqual(item.second, *other);
      });
    }
    case Kind::kNamespace:
      return left.dict == right.dict;
    case Kind::kCallable:
      return left.callable->function == right.callable->function;
    case Kind::kMacro:
      return left.macro == right.macro;
    case Kind::kLoop:
      return left.loop == right.loop;
    default:
      return left.sequence == right.sequence;
  }
}

StatusOr<int> Compare(const Value& left, const Value& right) {
  if (left.IsNumber() && right.IsNumber()) return CompareNumbers(left, right);
  if (left.IsString() && right.IsString()) {
    // Bytes of UTF-8 are in the order of the characters.
    const int order = left.View().compare(right.View());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (left.kind == right.kind && (left.kind == Kind::kList || left.kind == Kind::kTuple)) {
    const auto& a = left.sequence->items;
    const auto& b = right.sequence->items;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      if (!IsEqual(a[i], b[i])) return Compare(a[i], b[i]);
    }
    return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
  }
  if (left.IsUndefined()) return InvalidArgumentError(*left.message);
  if (right.IsUndefined()) return InvalidArgumentError(*right.message);
  return InvalidArgumentError("no order between instances of '" + std::string(TypeName(left)) +
                              "' and '" + std::string(TypeName(right)) + "'");
}

bool IsHashable(const Value& value) {
  if (value.kind == Kind::kTuple) {
    return std::all_of(value.sequence->items.begin(), value.sequence->items.end(), IsHashable);
  }
  return value.kind != Kind::kList && value.kind != Kind::kDict;
}

std::string ToText(const Value& value) {
  if (value.IsUndefined()) return std::string();
  if (value.IsString()) return std::string(value.View());
  std::string out;
  AppendRepr(value, &out);
  return out;
}

namespace {

void AppendItems(const std::vector<Value>& items, std::string* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) *out += ", ";
    AppendRepr(items[i], out);
  }
}

void AppendDictRepr(const Dict& dict, std::string* out) {
  *out += '{';
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) *out += ", ";
    AppendRepr(dict.items[i].first, out);
    *out += ": ";
    AppendRepr(dict.items[i].second, out);
  }
  *out += '}';
}

void AppendNamespaceRepr(const Dict& dict, std::string* out) {
  *out += "<Namespace {";
  for (size_t i = 0; i < dict.items.size(); ++i) {
    const auto& [name, value] = dict.items[i];
    if (i > 0) *out += ", ";
    AppendRepr(name, out);
    *out += ": ";
    // A list in between could lead back as well.
    if (value.kind == Kind::kNamespace || value.IsSequence() || value.IsDict()) {
      *out += "...";
    } else {
      AppendRepr(value, out);
    }
  }
  *out += "}>";
}

// range(a, b, c) from its items; the stop of an empty one is not known any more and shown as 0.
void AppendRangeRepr(const std::vector<Value>& items, std::string* out) {
  const Int start = items.empty() ? 0 : items[0].integer;
  const Int step = items.size() < 2 ? 1 : items[1].integer - start;
  const Int stop = items.empty() ? 0 : items.back().integer + step;
  *out += "range(" + FormatInt(start) + ", " + FormatInt(stop);
  if (step != 1) *out += ", " + FormatInt(step);
  *out += ')';
}

}  // namespace

void AppendRepr(const Value& value, std::string* out) {
  switch (value.kind) {
    case Kind::kUndefined:
      *out += "Undefined";
      return;
    case Kind::kNone:
      *out += "None";
      return;
    case Kind::kBool:
      *out += value.boolean ? "True" : "False";
      return;
    case Kind::kInt:
      *out += FormatInt(value.integer);
      return;
    case Kind::kFloat:
      *out += FormatFloat(value.real);
      return;
    case Kind::kString:
      AppendQuoted(value.View(), out);
      return;
    case Kind::kList:
      *out += '[';
      AppendItems(value.sequence->items, out);
      *out += ']';
      return;
    case Kind::kTuple:
      *out += '(';
      AppendItems(value.sequence->items, out);
      *out += value.sequence->items.size() == 1 ? ",)" : ")";
      return;
    case Kind::kRange:
      AppendRangeRepr(value.sequence->items, out);
      return;
    case Kind::kView:
      out->append(value.sequence->name).append("([");
      AppendItems(value.sequence->items, out);
      *out += "])";
      return;
    case Kind::kDict:
      AppendDictRepr(*value.dict, out);
      return;
    case Kind::kNamespace:
      // A namespace can hold itself: inside another one it is only named.
      AppendNamespaceRepr(*value.dict, out);
      return;
    case Kind::kCallable:
      *out += "<function " + std::string(value.callable->name) + ">";
      return;
    default:
      *out += "<" + std::string(TypeName(value)) + " object>";
      return;
  }
}

}  // namespace tandem::jinja
