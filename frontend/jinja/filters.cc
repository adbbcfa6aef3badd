// Jinja's filters (value | name(args)): numbers, and what fits nowhere else.

#include <algorithm>
#include <array>
#include <cmath>

#include "frontend/jinja/filter.h"
#include "frontend/jinja/format.h"
#include "frontend/jinja/interpreter.h"
#include "frontend/jinja/text.h"

namespace tandem::jinja {
namespace {

TANDEM_FILTER(FilterInt) {
  if (input.IsUndefined()) return InvalidArgumentError(*input.message);
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
  if (input.IsUndefined()) return InvalidArgumentError(*input.message);
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
  const bool binary = Flag(bound[0], false);
  Arguments strict;
  strict.positional.push_back(None());
  ASSIGN_OR_RETURN(const Value number, FilterFloat(interpreter, input, strict));
  if (number.IsNone()) return InvalidArgumentError("filesizeformat() needs a number");
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

TANDEM_FILTER(FilterDefault) {
  ASSIGN_OR_RETURN(const auto bound, Bind("default", args, {"default_value", "boolean"}));
  const bool boolean = Flag(bound[1], false);
  const bool replace = input.IsUndefined() || (boolean && !IsTrue(input));
  if (!replace) return input;
  return bound[0].IsGiven() ? bound[0] : Text("");
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

constexpr std::array<NamedFunction, 9> kFilters = {{
    {"abs", FilterAbs},
    {"attr", FilterAttr},
    {"d", FilterDefault},
    {"default", FilterDefault},
    {"filesizeformat", FilterFileSize},
    {"float", FilterFloat},
    {"int", FilterInt},
    {"pprint", FilterPPrint},
    {"round", FilterRound},
}};

}  // namespace

Function FindFilter(std::string_view name) {
  if (const Function filter = FindFunction(kFilters, name); filter != nullptr) return filter;
  if (const Function filter = FindTextFilter(name); filter != nullptr) return filter;
  return FindSequenceFilter(name);
}

}  // namespace tandem::jinja
