// The Interpreter's expressions: names, literals, operators, slices, filters and tests.

#include <algorithm>
#include <utility>

#include "frontend/jinja/builtins.h"
#include "frontend/jinja/interpreter.h"
#include "frontend/jinja/text.h"

namespace tandem::jinja {
namespace {

Status TypeError(std::string message) { return InvalidArgumentError(std::move(message)); }

}  // namespace

StatusOr<Value> Interpreter::Eval(const Expr& expr, const Scope& scope) {
  const Level level(&depth_);
  RETURN_IF_ERROR(CountSteps(1));
  auto value = EvalKind(expr, scope);
  if (heap_.exhausted()) RETURN_IF_ERROR(CountSteps(0));
  return value;
}

StatusOr<Value> Interpreter::EvalKind(const Expr& expr, const Scope& scope) {
  switch (expr.kind) {
    case ExprKind::kNone:
      return None();
    case ExprKind::kBool:
      return Bool(expr.integer != 0);
    case ExprKind::kInteger:
      return Integer(expr.integer);
    case ExprKind::kFloat:
      return Float(expr.real);
    case ExprKind::kString:
      return Text(expr.name);
    case ExprKind::kName:
      return Lookup(expr.name, scope);
    case ExprKind::kTuple:
    case ExprKind::kList:
      return EvalSequence(expr, scope);
    case ExprKind::kDict:
      return EvalDict(expr, scope);
    case ExprKind::kIf:
      return EvalIf(expr, scope);
    case ExprKind::kOr:
    case ExprKind::kAnd:
    case ExprKind::kNot:
      return EvalLogic(expr, scope);
    case ExprKind::kCompare:
      return EvalCompare(expr, scope);
    case ExprKind::kBinary:
      return EvalBinary(expr, scope);
    case ExprKind::kConcat:
      return EvalConcat(expr, scope);
    case ExprKind::kUnary:
      return EvalUnary(expr, scope);
    case ExprKind::kGetAttr:
      return EvalGetAttr(expr, scope);
    case ExprKind::kGetItem:
      return EvalGetItem(expr, scope);
    case ExprKind::kSlice:
      return TypeError("a slice outside of [ ]");
    case ExprKind::kCall:
      return EvalCall(expr, scope);
    case ExprKind::kFilter:
      return EvalFilter(expr, nullptr, scope);
    case ExprKind::kTest:
      return EvalTest(expr, scope);
  }
  return None();
}

Value Interpreter::Lookup(std::string_view name, const Scope& scope) {
  for (const Scope* at = &scope; at != nullptr; at = at->parent) {
    for (const auto& [known, value] : at->names) {
      if (known == name) return value;
    }
  }
  if (const Function function = FindGlobal(name); function != nullptr) {
    return heap_.NewCallable(name, function, Value());
  }
  return heap_.Undefined("'" + std::string(name) + "' is undefined");
}

StatusOr<Value> Interpreter::EvalSequence(const Expr& expr, const Scope& scope) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) {
    ASSIGN_OR_RETURN(const Value value, Eval(*item, scope));
    items.push_back(value);
  }
  return heap_.NewSequence(expr.kind == ExprKind::kTuple ? Kind::kTuple : Kind::kList,
                           std::move(items));
}

StatusOr<Value> Interpreter::EvalDict(const Expr& expr, const Scope& scope) {
  Dict dict;
  for (size_t i = 0; i < expr.items.size(); i += 2) {
    ASSIGN_OR_RETURN(const Value key, Eval(*expr.items[i], scope));
    ASSIGN_OR_RETURN(const Value value, Eval(*expr.items[i + 1], scope));
    if (!IsHashable(key)) {
      return TypeError("unhashable type: '" + std::string(TypeName(key)) + "'");
    }
    dict.Set(key, value);
  }
  return heap_.NewDict(std::move(dict));
}

StatusOr<Value> Interpreter::EvalIf(const Expr& expr, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value condition, Eval(*expr.items[1], scope));
  if (IsTrue(condition)) return Eval(*expr.items[0], scope);
  if (expr.items.size() > 2) return Eval(*expr.items[2], scope);
  return heap_.Undefined("the inline if-expression evaluated to false and no else was given");
}

StatusOr<Value> Interpreter::EvalLogic(const Expr& expr, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value left, Eval(*expr.items[0], scope));
  const bool truth = IsTrue(left);
  if (expr.kind == ExprKind::kNot) return Bool(!truth);
  if (truth == (expr.kind == ExprKind::kOr)) return left;
  return Eval(*expr.items[1], scope);
}

StatusOr<Value> Interpreter::EvalCompare(const Expr& expr, const Scope& scope) {
  ASSIGN_OR_RETURN(Value left, Eval(*expr.items[0], scope));
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    const std::string& op = expr.operators[i];
    ASSIGN_OR_RETURN(const Value right, Eval(*expr.items[i + 1], scope));
    bool holds = false;
    if (op == "in" || op == "not in") {
      ASSIGN_OR_RETURN(const bool contains, Contains(*this, right, left));
      holds = contains == (op == "in");
    } else {
      RETURN_IF_ERROR(CountSteps(std::min(Weight(left), Weight(right)) / 32));
      if (op == "==" || op == "!=") {
        holds = IsEqual(left, right) == (op == "==");
      } else {
        ASSIGN_OR_RETURN(const int order, Compare(left, right));
        holds = op == "<"    ? order < 0
                : op == "<=" ? order <= 0
                : op == ">"  ? order > 0
                             : order >= 0;
      }
    }
    if (!holds) return Bool(false);
    left = right;
  }
  return Bool(true);
}

StatusOr<Value> Interpreter::EvalBinary(const Expr& expr, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value left, Eval(*expr.items[0], scope));
  ASSIGN_OR_RETURN(const Value right, Eval(*expr.items[1], scope));
  return ApplyBinary(*this, expr.name, left, right);
}

StatusOr<Value> Interpreter::EvalConcat(const Expr& expr, const Scope& scope) {
  std::string text;
  for (const ExprPtr& item : expr.items) {
    ASSIGN_OR_RETURN(const Value value, Eval(*item, scope));
    ASSIGN_OR_RETURN(const std::string_view part, Str(value));
    RETURN_IF_ERROR(Emit(part, &text));
  }
  return String(std::move(text));
}

StatusOr<Value> Interpreter::EvalUnary(const Expr& expr, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value value, Eval(*expr.items[0], scope));
  if (value.IsUndefined()) return TypeError(*value.message);
  if (!value.IsNumber()) {
    return TypeError("bad operand type for unary " + expr.name + ": '" +
                     std::string(TypeName(value)) + "'");
  }
  const bool negate = expr.name == "-";
  if (value.kind == Kind::kFloat) return Float(negate ? -value.real : value.real);
  return Integer(negate ? -value.AsInt() : value.AsInt());
}

StatusOr<Value> Interpreter::EvalGetAttr(const Expr& expr, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value object, Eval(*expr.items[0], scope));
  return GetAttr(object, expr.name);
}

StatusOr<Value> Interpreter::EvalGetItem(const Expr& expr, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value object, Eval(*expr.items[0], scope));
  if (expr.items[1]->kind == ExprKind::kSlice) return EvalSlice(object, *expr.items[1], scope);
  ASSIGN_OR_RETURN(const Value index, Eval(*expr.items[1], scope));
  return GetItem(object, index);
}

StatusOr<Value> Interpreter::EvalSlice(const Value& object, const Expr& slice, const Scope& scope) {
  std::optional<int64_t> parts[3];  // start, stop, step
  for (size_t i = 0; i < 3; ++i) {
    if (slice.items[i] == nullptr) continue;
    ASSIGN_OR_RETURN(const Value value, Eval(*slice.items[i], scope));
    if (value.IsNone()) continue;
    if (!value.IsInteger()) {
      if (value.IsUndefined()) return TypeError(*value.message);
      return TypeError("slice indices must be integers or None");
    }
    const Int bound = Int{1} << 40;
    parts[i] = static_cast<int64_t>(std::clamp(value.AsInt(), -bound, bound));
  }
  if (object.IsUndefined()) return TypeError(*object.message);
  const bool sliceable = object.IsString() || object.kind == Kind::kList ||
                         object.kind == Kind::kTuple || object.kind == Kind::kRange;
  if (!sliceable) {
    return TypeError("'" + std::string(TypeName(object)) + "' object is not subscriptable");
  }
  const int64_t step = parts[2].value_or(1);
  if (step == 0) return TypeError("slice step cannot be zero");

  std::vector<std::string_view> chars;
  if (object.IsString()) {
    RETURN_IF_ERROR(CountSteps(static_cast<int64_t>(object.text.size) / 16));
    chars = SplitChars(object.View());
  }
  const auto size =
      static_cast<int64_t>(object.IsString() ? chars.size() : object.sequence->items.size());
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto bounded = [&](std::optional<int64_t> part, int64_t fallback) {
    if (!part.has_value()) return fallback;
    return std::clamp(*part < 0 ? *part + size : *part, low, high);
  };
  const int64_t start = bounded(parts[0], step > 0 ? 0 : size - 1);
  const int64_t stop = bounded(parts[1], step > 0 ? size : -1);
  std::string text;
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (object.IsString()) {
      text += chars[i];
    } else {
      items.push_back(object.sequence->items[i]);
    }
  }
  if (object.IsString()) return String(std::move(text));
  return heap_.NewSequence(object.kind, std::move(items), object.sequence->name);
}

StatusOr<Arguments> Interpreter::EvalArgs(const CallArgs& args, const Scope& scope) {
  Arguments result;
  for (const ExprPtr& item : args.positional) {
    ASSIGN_OR_RETURN(const Value value, Eval(*item, scope));
    result.positional.push_back(value);
  }
  for (const auto& [name, expr] : args.named) {
    ASSIGN_OR_RETURN(const Value value, Eval(*expr, scope));
    result.named.emplace_back(name, value);
  }
  if (args.star != nullptr) {
    ASSIGN_OR_RETURN(const Value value, Eval(*args.star, scope));
    ASSIGN_OR_RETURN(const std::vector<Value> items, Items(value));
    result.positional.insert(result.positional.end(), items.begin(), items.end());
  }
  if (args.double_star != nullptr) {
    ASSIGN_OR_RETURN(const Value value, Eval(*args.double_star, scope));
    if (!value.IsDict()) return TypeError("argument after ** must be a mapping");
    for (const auto& [key, item] : value.dict->items) {
      if (!key.IsString()) return TypeError("keywords must be strings");
      result.named.emplace_back(key.View(), item);
    }
  }
  return result;
}

StatusOr<Value> Interpreter::EvalCall(const Expr& expr, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value callee, Eval(*expr.items[0], scope));
  ASSIGN_OR_RETURN(const Arguments args, EvalArgs(expr.args, scope));
  return Call(callee, args);
}

// The input is the filter's first item, or `input` for the innermost filter of a block.
StatusOr<Value> Interpreter::EvalFilter(const Expr& expr, const Value* input, const Scope& scope) {
  const Level level(&depth_);
  RETURN_IF_ERROR(CountSteps(1));
  Value value;
  if (expr.items.empty()) {
    if (input == nullptr) return TypeError("a filter without input");
    value = *input;
  } else if (expr.items[0]->kind == ExprKind::kFilter) {
    ASSIGN_OR_RETURN(value, EvalFilter(*expr.items[0], input, scope));
  } else {
    ASSIGN_OR_RETURN(value, Eval(*expr.items[0], scope));
  }
  ASSIGN_OR_RETURN(const Arguments args, EvalArgs(expr.args, scope));
  return CallFilter(expr.name, value, args);
}

StatusOr<Value> Interpreter::EvalTest(const Expr& expr, const Scope& scope) {
  ASSIGN_OR_RETURN(const Value value, Eval(*expr.items[0], scope));
  ASSIGN_OR_RETURN(const Arguments args, EvalArgs(expr.args, scope));
  ASSIGN_OR_RETURN(const bool holds, CallTest(expr.name, value, args));
  return Bool(holds);
}

}  // namespace tandem::jinja
