// Arithmetic, containment and argument binding, as Python does them.

#include <algorithm>
#include <cmath>

#include "frontend/jinja/builtins.h"
#include "frontend/jinja/format.h"
#include "frontend/jinja/interpreter.h"

namespace tandem::jinja {
namespace {

Status Unsupported(std::string_view op, const Value& left, const Value& right) {
  return InvalidArgumentError("unsupported operand type(s) for " + std::string(op) + ": '" +
                              std::string(TypeName(left)) + "' and '" +
                              std::string(TypeName(right)) + "'");
}

Status TooLarge() { return ResourceExhaustedError("an integer of the chat template is too large"); }
Status DivisionByZero() { return InvalidArgumentError("division by zero"); }

StatusOr<Value> IntegerPower(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return DivisionByZero();
    return Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  // Without the two trivial bases the loop ends by overflow after 127 rounds.
  if (base == 0 || base == 1) return Integer(exponent == 0 ? 1 : base);
  if (base == -1) return Integer(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return TooLarge();
  }
  return Integer(result);
}

StatusOr<Value> IntegerBinary(std::string_view op, Int left, Int right) {
  Int result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(left, right, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(left, right, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(left, right, &result);
  } else if (op == "**") {
    return IntegerPower(left, right);
  } else if (right == 0) {
    return DivisionByZero();
  } else if (op == "/") {
    return Float(static_cast<double>(left) / static_cast<double>(right));
  } else if (right == -1) {
    result = 0;  // the smallest integer divided by -1 does not fit
    if (op == "//") overflow = __builtin_sub_overflow(Int{0}, left, &result);
  } else {
    // Python rounds down, and the remainder has the divisor's sign.
    const Int remainder = left % right;
    const bool adjust = remainder != 0 && (remainder < 0) != (right < 0);
    result = op == "//" ? left / right - (adjust ? 1 : 0) : remainder + (adjust ? right : 0);
  }
  if (overflow) return TooLarge();
  return Integer(result);
}

StatusOr<Value> FloatBinary(std::string_view op, double left, double right) {
  if (op == "+") return Float(left + right);
  if (op == "-") return Float(left - right);
  if (op == "*") return Float(left * right);
  if (op == "**") {
    const double result = std::pow(left, right);
    if (std::isnan(result) && !std::isnan(left) && !std::isnan(right)) {
      return InvalidArgumentError("a power that is not a real number");
    }
    return Float(result);
  }
  if (right == 0) return DivisionByZero();
  if (op == "/") return Float(left / right);
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0)) remainder += right;
  if (op == "%") return Float(remainder);
  return Float(std::floor((left - remainder) / right + 0.5));
}

StatusOr<Value> Repeat(Interpreter& interpreter, const Value& what, Int times) {
  if (times < 0) times = 0;
  const auto size = static_cast<Int>(what.IsString() ? what.text.size
                                                     : what.sequence->items.size() * sizeof(Value));
  if (size != 0 && times > (Int{1} << 40) / size) {
    return ResourceExhaustedError("the chat template builds a value over its limit of memory");
  }
  RETURN_IF_ERROR(interpreter.heap().Reserve(static_cast<int64_t>(size * times)));
  if (size == 0) times = 0;
  if (what.IsString()) {
    std::string text;
    text.reserve(static_cast<size_t>(size * times));
    for (Int i = 0; i < times; ++i) text += what.View();
    return interpreter.String(std::move(text));
  }
  std::vector<Value> items;
  for (Int i = 0; i < times; ++i) {
    items.insert(items.end(), what.sequence->items.begin(), what.sequence->items.end());
  }
  return interpreter.heap().NewSequence(what.kind, std::move(items));
}

bool CanRepeat(const Value& value) {
  return value.IsString() || value.kind == Kind::kList || value.kind == Kind::kTuple;
}

// What "%" takes as a mapping; it is then no error when the format names none of its keys.
bool IsMappingLike(const Value& value) {
  return value.IsDict() || value.kind == Kind::kList || value.kind == Kind::kRange;
}

StatusOr<Value> Add(Interpreter& interpreter, const Value& left, const Value& right) {
  if (left.IsString()) {
    if (!right.IsString()) {
      return InvalidArgumentError("can only concatenate str (not \"" +
                                  std::string(TypeName(right)) + "\") to str");
    }
    std::string text(left.View());
    text += right.View();
    return interpreter.String(std::move(text));
  }
  if (left.kind == right.kind && (left.kind == Kind::kList || left.kind == Kind::kTuple)) {
    std::vector<Value> items = left.sequence->items;
    items.insert(items.end(), right.sequence->items.begin(), right.sequence->items.end());
    return interpreter.heap().NewSequence(left.kind, std::move(items));
  }
  return Unsupported("+", left, right);
}

}  // namespace

StatusOr<Value> ApplyBinary(Interpreter& interpreter, std::string_view op, const Value& left,
                            const Value& right) {
  if (left.IsUndefined()) return InvalidArgumentError(*left.message);
  if (left.IsNumber() && right.IsNumber()) {
    if (left.IsInteger() && right.IsInteger()) {
      return IntegerBinary(op, left.AsInt(), right.AsInt());
    }
    return FloatBinary(op, left.AsDouble(), right.AsDouble());
  }
  if (op == "%" && left.IsString()) {
    std::vector<Value> args = {right};
    if (right.kind == Kind::kTuple) args = right.sequence->items;
    RETURN_IF_ERROR(interpreter.CountSteps(Weight(right) / 32));
    ASSIGN_OR_RETURN(std::string text,
                     PercentFormat(left.View(), args, IsMappingLike(right) ? right : Value()));
    return interpreter.String(std::move(text));
  }
  if (right.IsUndefined()) return InvalidArgumentError(*right.message);
  if (op == "+") return Add(interpreter, left, right);
  if (op == "*" && CanRepeat(left) && right.IsInteger()) {
    return Repeat(interpreter, left, right.AsInt());
  }
  if (op == "*" && CanRepeat(right) && left.IsInteger()) {
    return Repeat(interpreter, right, left.AsInt());
  }
  return Unsupported(op, left, right);
}

StatusOr<bool> Contains(Interpreter& interpreter, const Value& whole, const Value& part) {
  switch (whole.kind) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!part.IsString()) {
        return InvalidArgumentError("'in <string>' requires string as left operand, not " +
                                    std::string(TypeName(part)));
      }
      RETURN_IF_ERROR(interpreter.CountSteps(static_cast<int64_t>(whole.text.size) / 64));
      return whole.View().find(part.View()) != std::string_view::npos;
    case Kind::kDict:
      if (!IsHashable(part)) {
        return InvalidArgumentError("unhashable type: '" + std::string(TypeName(part)) + "'");
      }
      RETURN_IF_ERROR(interpreter.CountSteps(static_cast<int64_t>(whole.dict->items.size()) / 8));
      return whole.dict->Find(part) != nullptr;
    default:
      break;
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Items(whole));
  for (const Value& item : items) {
    if (IsEqual(item, part)) return true;
    if (item.IsSequence() || item.IsDict()) {
      RETURN_IF_ERROR(interpreter.CountSteps(std::min(Weight(item), Weight(part)) / 32));
    }
  }
  return false;
}

StatusOr<int64_t> Length(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(
          std::count_if(value.View().begin(), value.View().end(),
                        [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView:
      return static_cast<int64_t>(value.sequence->items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict->items.size());
    case Kind::kLoop:
      return static_cast<int64_t>(value.loop->items.size());
    default:
      return InvalidArgumentError("object of type '" + std::string(TypeName(value)) +
                                  "' has no len()");
  }
}

StatusOr<std::vector<Value>> Bind(std::string_view function, const Arguments& args,
                                  std::initializer_list<std::string_view> names,
                                  size_t num_required) {
  std::vector<Value> bound(names.size());
  if (args.positional.size() > names.size()) {
    return InvalidArgumentError(std::string(function) + "() takes at most " +
                                std::to_string(names.size()) + " argument(s), got " +
                                std::to_string(args.positional.size()));
  }
  std::copy(args.positional.begin(), args.positional.end(), bound.begin());
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      return InvalidArgumentError(std::string(function) +
                                  "() got an unexpected keyword argument '" + std::string(name) +
                                  "'");
    }
    bound[static_cast<size_t>(it - names.begin())] = value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!bound[i].IsGiven()) {
      return InvalidArgumentError(std::string(function) + "() misses its argument '" +
                                  std::string(names.begin()[i]) + "'");
    }
  }
  return bound;
}

StatusOr<int64_t> ToIndex(const Value& value, std::string_view name, int64_t fallback) {
  if (!value.IsGiven()) return fallback;
  if (!value.IsInteger()) {
    return InvalidArgumentError(std::string(name) + " must be an integer, not " +
                                std::string(TypeName(value)));
  }
  const Int bound = Int{1} << 40;
  return static_cast<int64_t>(std::clamp(value.AsInt(), -bound, bound));
}

StatusOr<std::string_view> ToString(const Value& value, std::string_view name,
                                    std::string_view fallback) {
  if (!value.IsGiven()) return fallback;
  if (!value.IsString()) {
    return InvalidArgumentError(std::string(name) + " must be str, not " +
                                std::string(TypeName(value)));
  }
  return value.View();
}

}  // namespace tandem::jinja
