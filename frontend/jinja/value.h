#pragma once

// The values a template computes with, as Python has them. A Value is a small handle; what it
// points to lives in the Heap of one render and is freed with it, so there are no reference counts
// and no leaks. Thread: one render. Strings are well-formed UTF-8; views point into the heap, the
// tree or the caller's JSON. Sequences and dicts never change once a template can see them (the
// sandbox refuses it); namespaces, cyclers and used-up generators do.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"
#include "frontend/jinja/number.h"

namespace tandem::jinja {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kView,       // dict.keys(), .values(), .items()
  kGenerator,  // the result of map() and the like: can be walked once
  kDict,
  kNamespace,
  kCycler,
  kCallable,
  kMacro,
  kLoop,
};

struct Sequence;
struct Dict;
struct Callable;
struct Macro;
struct Loop;

struct Value {
  Kind kind = Kind::kUndefined;
  union {
    const std::string* message = nullptr;  // kUndefined: its error; null: no value given
    bool boolean;
    Int integer;
    double real;
    struct {
      const char* data;
      size_t size;
    } text;
    Sequence* sequence;  // kList to kGenerator, kCycler
    Dict* dict;          // kDict, kNamespace
    const Callable* callable;
    const Macro* macro;
    Loop* loop;
  };

  Value() {}  // no value given
  bool IsGiven() const { return kind != Kind::kUndefined || message != nullptr; }
  bool IsUndefined() const { return kind == Kind::kUndefined; }
  bool IsNone() const { return kind == Kind::kNone; }
  bool IsString() const { return kind == Kind::kString; }
  bool IsDict() const { return kind == Kind::kDict; }
  bool IsInteger() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool IsNumber() const { return IsInteger() || kind == Kind::kFloat; }
  bool IsSequence() const { return kind >= Kind::kList && kind <= Kind::kGenerator; }
  std::string_view View() const { return {text.data, text.size}; }            // kString
  Int AsInt() const { return kind == Kind::kBool ? Int{boolean} : integer; }  // IsInteger
  double AsDouble() const {                                                   // IsNumber
    return kind == Kind::kFloat ? real : static_cast<double>(AsInt());
  }
};

Value None();
Value Bool(bool value);
Value Integer(Int value);
Value Float(double value);
Value Text(std::string_view text);  // the bytes must outlive the render

struct Sequence {
  std::vector<Value> items;
  std::string_view name;  // how a view or range is printed: "dict_items", "range"
  size_t next = 0;        // kGenerator: first item not taken; kCycler: current
  int depth = 1;
  int64_t weight = 1;  // roughly the bytes of it written out, shared parts counted each time
};

using DictItems = std::vector<std::pair<Value, Value>>;
struct Dict {
  DictItems items;  // no two keys are equal
  int depth = 1;
  int64_t weight = 1;
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(const Value& key, const Value& value);
};

class Interpreter;
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};
// self: the object of a method, the input of a filter or test.
using Function = StatusOr<Value> (*)(Interpreter& interpreter, const Value& self,
                                     const Arguments& args);
struct Callable {
  std::string_view name;
  Function function;
  Value self;
};

// Owns what one render builds, counts its bytes and limits its nesting and weight.
class Heap {
 public:
  // Of lists in lists: code that walks a value may recurse.
  static constexpr int kMaxDepth = 200;

  explicit Heap(int64_t max_bytes) : max_weight_(max_bytes), left_(max_bytes) {}

  Value String(std::string text);
  Value Undefined(std::string message);
  Value NewSequence(Kind kind, std::vector<Value> items, std::string_view name = {});
  Value NewDict(Dict dict);
  Value NewNamespace(Dict dict);
  Value NewCallable(std::string_view name, Function function, const Value& self);
  Value FromJson(const nlohmann::ordered_json& json) { return FromJson(json, 0); }  // views of json

  // Fails when this much more would exceed the limit: called before building something large.
  Status Reserve(int64_t bytes) const;
  void Charge(int64_t bytes) { left_ -= bytes; }
  // Over a limit: the render must end before it looks at another value.
  bool exhausted() const { return left_ < 0 || too_large_; }

 private:
  Value FromJson(const nlohmann::ordered_json& json, int depth);
  void Account(const Value& item, int* depth, int64_t* weight);

  int64_t max_weight_;
  bool too_large_ = false;
  int64_t left_;
  std::deque<std::string> strings_;
  std::deque<Sequence> sequences_;
  std::deque<Dict> dicts_;
  std::deque<Callable> callables_;
};

int64_t Weight(const Value& value);

// As Python's type(x).__name__.
std::string_view TypeName(const Value& value);
bool IsTrue(const Value& value);
bool IsEqual(const Value& left, const Value& right);
// Less, equal or greater; InvalidArgument for kinds that have no order.
StatusOr<int> Compare(const Value& left, const Value& right);
bool IsHashable(const Value& value);

std::string ToText(const Value& value);                 // as Python's str()
void AppendRepr(const Value& value, std::string* out);  // as Python's repr()

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// As Python's json.dumps(); InvalidArgument for a value JSON has no form for.
StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style);

}  // namespace tandem::jinja
