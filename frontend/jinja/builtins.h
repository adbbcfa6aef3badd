#pragma once

// What templates can use without defining it: filters, tests, global functions, and the methods
// of strings, lists and dicts. Tables of name and function; looked up by name. Any thread.

#include <array>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "frontend/jinja/value.h"

namespace tandem::jinja {

// nullptr when no row has that name.
Function FindFilter(std::string_view name);
Function FindTest(std::string_view name);  // returns a bool Value
Function FindGlobal(std::string_view name);
Function FindMethod(const Value& object, std::string_view name);
// Methods the sandbox refuses because they would change the object.
bool IsMutatingMethod(const Value& object, std::string_view name);

// Operators, by their sign: + - * / // % **
StatusOr<Value> ApplyBinary(Interpreter& interpreter, std::string_view op, const Value& left,
                            const Value& right);
// `part in whole`
StatusOr<bool> Contains(Interpreter& interpreter, const Value& whole, const Value& part);
StatusOr<int64_t> Length(const Value& value);

// Sorts arguments into the parameters `names`; an argument that was not given is a Value for which
// IsGiven is false. Fails on too many, unknown or missing ones: the first `num_required` must be
// there.
StatusOr<std::vector<Value>> Bind(std::string_view function, const Arguments& args,
                                  std::initializer_list<std::string_view> names,
                                  size_t num_required = 0);

StatusOr<int64_t> ToIndex(const Value& value, std::string_view name, int64_t fallback);
StatusOr<std::string_view> ToString(const Value& value, std::string_view name,
                                    std::string_view fallback);

// Tables are searched linearly: the longest has 60 rows.
struct NamedFunction {
  std::string_view name;
  Function function;
};
template <size_t n>
Function FindFunction(const std::array<NamedFunction, n>& table, std::string_view name) {
  for (const NamedFunction& row : table) {
    if (row.name == name) return row.function;
  }
  return nullptr;
}

}  // namespace tandem::jinja
