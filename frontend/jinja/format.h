#pragma once

// Python's two ways to format: "%s" % x and "{}".format(x). Pure; any thread.
// Fails with InvalidArgument for a wrong format, a missing argument or one of the wrong type, and
// with ResourceExhausted for a width over kMaxWidth.

#include <string>
#include <string_view>

#include "common/status.h"
#include "frontend/jinja/value.h"

namespace tandem::jinja {

constexpr int kMaxWidth = 10'000;

// args: the tuple's items, or one value; names: a dict for %(name)s, or not given.
StatusOr<std::string> PercentFormat(std::string_view format, const std::vector<Value>& args,
                                    const Value& names);

// Attributes and items of arguments ("{0.x}", "{a[0]}") are not reachable here.
StatusOr<std::string> BraceFormat(std::string_view format, const Arguments& args);

// Python's round-half-even of the exact binary value to `digits` decimals.
double RoundTo(double value, int digits);

}  // namespace tandem::jinja
