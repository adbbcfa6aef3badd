// Jinja's tests (value is name(args)), as jinja2 3.1 defines them.

#include <array>

#include "frontend/jinja/builtins.h"
#include "frontend/jinja/interpreter.h"
#include "frontend/jinja/text.h"

namespace tandem::jinja {
namespace {

#define TANDEM_TEST(name)                                         \
  StatusOr<Value> name([[maybe_unused]] Interpreter& interpreter, \
                       [[maybe_unused]] const Value& input,       \
                       [[maybe_unused]] const Arguments& args)

StatusOr<Value> Other(std::string_view test, const Arguments& args) {
  ASSIGN_OR_RETURN(const auto bound, Bind(test, args, {"other"}, 1));
  return bound[0];
}

TANDEM_TEST(IsDefined) { return Bool(!input.IsUndefined()); }
TANDEM_TEST(IsUndefinedTest) { return Bool(input.IsUndefined()); }
TANDEM_TEST(IsNoneTest) { return Bool(input.IsNone()); }
TANDEM_TEST(IsBoolean) { return Bool(input.kind == Kind::kBool); }
TANDEM_TEST(IsTrueTest) { return Bool(input.kind == Kind::kBool && input.boolean); }
TANDEM_TEST(IsFalse) { return Bool(input.kind == Kind::kBool && !input.boolean); }
TANDEM_TEST(IsIntegerTest) { return Bool(input.kind == Kind::kInt); }
TANDEM_TEST(IsFloat) { return Bool(input.kind == Kind::kFloat); }
TANDEM_TEST(IsNumberTest) { return Bool(input.IsNumber()); }
TANDEM_TEST(IsStringTest) { return Bool(input.IsString()); }
TANDEM_TEST(IsMapping) { return Bool(input.IsDict()); }

TANDEM_TEST(IsCallable) {
  return Bool(input.kind == Kind::kCallable || input.kind == Kind::kMacro ||
              input.kind == Kind::kLoop || input.IsUndefined());
}

// Whatever has a length and an index; an undefined value has both.
TANDEM_TEST(IsSequenceTest) {
  return Bool(input.IsString() || input.IsDict() || input.IsUndefined() ||
              input.kind == Kind::kList || input.kind == Kind::kTuple ||
              input.kind == Kind::kRange);
}

TANDEM_TEST(IsIterable) {
  return Bool(input.IsString() || input.IsDict() || input.IsUndefined() || input.IsSequence());
}

StatusOr<Value> Remainder(Interpreter& interpreter, const Value& input, const Value& divisor) {
  return ApplyBinary(interpreter, "%", input, divisor);
}
TANDEM_TEST(IsOdd) {
  if (input.IsString()) return InvalidArgumentError("odd needs a number");
  ASSIGN_OR_RETURN(const Value rest, Remainder(interpreter, input, Integer(2)));
  return Bool(IsEqual(rest, Integer(1)));
}
TANDEM_TEST(IsEven) {
  if (input.IsString()) return InvalidArgumentError("even needs a number");
  ASSIGN_OR_RETURN(const Value rest, Remainder(interpreter, input, Integer(2)));
  return Bool(IsEqual(rest, Integer(0)));
}
TANDEM_TEST(IsDivisibleBy) {
  ASSIGN_OR_RETURN(const Value other, Other("divisibleby", args));
  ASSIGN_OR_RETURN(const Value rest, Remainder(interpreter, input, other));
  return Bool(IsEqual(rest, Integer(0)));
}

TANDEM_TEST(IsEq) {
  ASSIGN_OR_RETURN(const Value other, Other("eq", args));
  RETURN_IF_ERROR(interpreter.CountSteps(std::min(Weight(input), Weight(other)) / 32));
  return Bool(IsEqual(input, other));
}
TANDEM_TEST(IsNe) {
  ASSIGN_OR_RETURN(const Value other, Other("ne", args));
  RETURN_IF_ERROR(interpreter.CountSteps(std::min(Weight(input), Weight(other)) / 32));
  return Bool(!IsEqual(input, other));
}

StatusOr<int> OrderTo(Interpreter& interpreter, const Value& input, const Arguments& args) {
  ASSIGN_OR_RETURN(const Value other, Other("comparison", args));
  RETURN_IF_ERROR(interpreter.CountSteps(std::min(Weight(input), Weight(other)) / 32));
  return Compare(input, other);
}
TANDEM_TEST(IsLess) {
  ASSIGN_OR_RETURN(const int order, OrderTo(interpreter, input, args));
  return Bool(order < 0);
}
TANDEM_TEST(IsLessOrEqual) {
  ASSIGN_OR_RETURN(const int order, OrderTo(interpreter, input, args));
  return Bool(order <= 0);
}
TANDEM_TEST(IsGreater) {
  ASSIGN_OR_RETURN(const int order, OrderTo(interpreter, input, args));
  return Bool(order > 0);
}
TANDEM_TEST(IsGreaterOrEqual) {
  ASSIGN_OR_RETURN(const int order, OrderTo(interpreter, input, args));
  return Bool(order >= 0);
}

TANDEM_TEST(IsIn) {
  ASSIGN_OR_RETURN(const Value other, Other("in", args));
  ASSIGN_OR_RETURN(const bool contains, Contains(interpreter, other, input));
  return Bool(contains);
}

// Python's `is`: the same object, or the same small value.
TANDEM_TEST(IsSameAs) {
  ASSIGN_OR_RETURN(const Value other, Other("sameas", args));
  if (input.kind != other.kind) return Bool(false);
  if (input.IsSequence()) return Bool(input.sequence == other.sequence);
  if (input.IsDict()) return Bool(input.dict == other.dict);
  return Bool(IsEqual(input, other));
}

TANDEM_TEST(IsLower) {
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  return Bool(IsLowerText(text));
}
TANDEM_TEST(IsUpper) {
  ASSIGN_OR_RETURN(const std::string_view text, interpreter.Str(input));
  return Bool(IsUpperText(text));
}

TANDEM_TEST(IsFilter) { return Bool(input.IsString() && FindFilter(input.View()) != nullptr); }
TANDEM_TEST(IsTest) { return Bool(input.IsString() && FindTest(input.View()) != nullptr); }
TANDEM_TEST(IsEscaped) { return Bool(false); }

#undef TANDEM_TEST

constexpr std::array<NamedFunction, 39> kTests = {{
    {"!=", IsNe},
    {"<", IsLess},
    {"<=", IsLessOrEqual},
    {"==", IsEq},
    {">", IsGreater},
    {">=", IsGreaterOrEqual},
    {"boolean", IsBoolean},
    {"callable", IsCallable},
    {"defined", IsDefined},
    {"divisibleby", IsDivisibleBy},
    {"eq", IsEq},
    {"equalto", IsEq},
    {"escaped", IsEscaped},
    {"even", IsEven},
    {"false", IsFalse},
    {"filter", IsFilter},
    {"float", IsFloat},
    {"ge", IsGreaterOrEqual},
    {"greaterthan", IsGreater},
    {"gt", IsGreater},
    {"in", IsIn},
    {"integer", IsIntegerTest},
    {"iterable", IsIterable},
    {"le", IsLessOrEqual},
    {"lessthan", IsLess},
    {"lower", IsLower},
    {"lt", IsLess},
    {"mapping", IsMapping},
    {"ne", IsNe},
    {"none", IsNoneTest},
    {"number", IsNumberTest},
    {"odd", IsOdd},
    {"sameas", IsSameAs},
    {"sequence", IsSequenceTest},
    {"string", IsStringTest},
    {"test", IsTest},
    {"true", IsTrueTest},
    {"undefined", IsUndefinedTest},
    {"upper", IsUpper},
}};

}  // namespace

Function FindTest(std::string_view name) { return FindFunction(kTests, name); }

}  // namespace tandem::jinja
