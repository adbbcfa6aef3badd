#pragma once

// What the filter files share: the signature of a filter and the sets they define. Any thread.

#include "frontend/jinja/builtins.h"

namespace tandem::jinja {

// The signature of every filter.
#define TANDEM_FILTER(name)                                       \
  StatusOr<Value> name([[maybe_unused]] Interpreter& interpreter, \
                       [[maybe_unused]] const Value& input,       \
                       [[maybe_unused]] const Arguments& args)

// nullptr when the set has none of that name.
Function FindTextFilter(std::string_view name);
Function FindSequenceFilter(std::string_view name);

// A parameter that is true or false as Python sees it.
inline bool Flag(const Value& value, bool fallback) {
  return value.IsGiven() ? IsTrue(value) : fallback;
}

}  // namespace tandem::jinja
