#include "frontend/chat/jinja_interpreter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "frontend/chat/jinja_builtins.h"
#include "frontend/chat/jinja_text.h"

namespace tandem::jinja {
namespace {

Status TypeError(std::string message) { return InvalidArgumentError(std::move(message)); }

}  // namespace

void Scope::Set(std::string_view name, const Value& value) {
  for (auto& entry : names) {
    if (entry.first == name) {
      entry.second = value;
      return;
    }
  }
  names.emplace_back(name, value);
}

Interpreter::Interpreter(const RenderLimits& limits, int64_t now_s)
    : limits_(limits),
      now_s_(now_s),
      heap_(limits.max_value_bytes),
      steps_left_(limits.max_steps) {}

StatusOr<std::string> Interpreter::Render(const Template& source, const Dict& variables) {
  Scope* context = NewScope(nullptr);
  for (const auto& [name, value] : variables.items) context->Set(name.View(), value);
  std::string out;
  const auto flow = ExecBody(source.body, NewScope(context), &out);
  if (flow.ok()) return out;
  // raise_exception speaks to the client in its own words.
  const Status& status = flow.status();
  if (status.code() == StatusCode::kAborted) return InvalidArgumentError(status.message());
  return status.WithContext("chat template line " + std::to_string(error_line_));
}

Status Interpreter::CountSteps(int64_t steps) {
  steps_left_ -= steps;
  if (steps_left_ < 0) {
    return ResourceExhaustedError("the chat template runs longer than its limit of steps");
  }
  if (heap_.exhausted()) {
    return ResourceExhaustedError("the chat template builds values over its limit of memory");
  }
  if (depth_ > limits_.max_depth) {
    return ResourceExhaustedError("the chat template is nested more than " +
                                  std::to_string(limits_.max_depth) + " levels deep");
  }
  return OkStatus();
}

Scope* Interpreter::NewScope(const Scope* parent) {
  heap_.Charge(sizeof(Scope));
  return &scopes_.emplace_back(Scope{parent, {}});
}

Status Interpreter::Emit(std::string_view text, std::string* out) {
  if (static_cast<int64_t>(out->size() + text.size()) > limits_.max_output_bytes) {
    return ResourceExhaustedError("the chat template writes more than " +
                                  std::to_string(limits_.max_output_bytes) + " bytes");
  }
  *out += text;
  return OkStatus();
}

StatusOr<std::string_view> Interpreter::Str(const Value& value) {
  if (value.IsString()) return value.View();
  RETURN_IF_ERROR(CountSteps(Weight(value) / 32));
  return String(ToText(value)).View();
}

// --- statements ---

StatusOr<Interpreter::Flow> Interpreter::ExecBody(const Body& body, Scope* scope,
                                                  std::string* out) {
  for (const auto& stmt : body) {
    auto flow = Exec(*stmt, scope, out);
    if (!flow.ok()) {
      if (error_line_ == 0) error_line_ = stmt->line;
      return flow;
    }
    if (*flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

StatusOr<Interpreter::Flow> Interpreter::Exec(const Stmt& stmt, Scope* scope, std::string* out) {
  const Level level(&depth_);
  RETURN_IF_ERROR(CountSteps(1));
  Status status;
  switch (stmt.kind) {
    case StmtKind::kText:
      status = Emit(stmt.text, out);
      break;
    case StmtKind::kPrint: {
      ASSIGN_OR_RETURN(const Value value, Eval(*stmt.value, *scope));
      ASSIGN_OR_RETURN(const std::string_view text, Str(value));
      status = Emit(text, out);
      break;
    }
    case StmtKind::kIf:
      return ExecIf(stmt, scope, out);
    case StmtKind::kFor: {
      ASSIGN_OR_RETURN(const Value iterable, Eval(*stmt.value, *scope));
      return ExecFor(stmt, scope, iterable, 0, out);
    }
    case StmtKind::kSet:
      status = ExecSet(stmt, scope);
      break;
    case StmtKind::kSetBlock:
      status = ExecSetBlock(stmt, scope);
      break;
    case StmtKind::kMacro: {
      Value value;
      value.kind = Kind::kMacro;
      value.macro = &macros_.emplace_back(Macro{&stmt, scope});
      scope->Set(stmt.text, value);
      break;
    }
    case StmtKind::kCall:
      status = ExecCall(stmt, scope, out);
      break;
    case StmtKind::kFilter:
      status = ExecFilter(stmt, scope, out);
      break;
    case StmtKind::kWith:
      return ExecWith(stmt, scope, out);
    case StmtKind::kScope:
      return ExecBody(stmt.body, NewScope(scope), out);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
    case StmtKind::kForbidden:
      status = TypeError(stmt.text);
      break;
  }
  if (!status.ok()) return status;
  return Flow::kNormal;
}

StatusOr<Interpreter::Flow> Interpreter::ExecIf(const Stmt& stmt, Scope* scope, std::string* out) {
  for (const auto& [condition, body] : stmt.branches) {
    ASSIGN_OR_RETURN(const Value value, Eval(*condition, *scope));
    if (IsTrue(value)) return ExecBody(body, scope, out);
  }
  return ExecBody(stmt.else_body, scope, out);
}

StatusOr<std::vector<Value>> Interpreter::FilterItems(const Stmt& stmt, const Scope* scope,
                                                      std::vector<Value> items) {
  std::vector<Value> kept;
  for (const Value& item : items) {
    Scope inner{scope, {}};
    RETURN_IF_ERROR(Assign(stmt.target, item, &inner));
    ASSIGN_OR_RETURN(const Value wanted, Eval(*stmt.condition, inner));
    if (IsTrue(wanted)) kept.push_back(item);
  }
  return kept;
}

StatusOr<Interpreter::Flow> Interpreter::ExecFor(const Stmt& stmt, const Scope* scope,
                                                 const Value& iterable, int depth,
                                                 std::string* out) {
  ASSIGN_OR_RETURN(std::vector<Value> items, Items(iterable));
  if (stmt.condition != nullptr) {
    ASSIGN_OR_RETURN(items, FilterItems(stmt, scope, std::move(items)));
  }
  if (items.empty()) return ExecBody(stmt.else_body, NewScope(scope), out);
  heap_.Charge(static_cast<int64_t>(items.size() * sizeof(Value)));
  Loop& loop = loops_.emplace_back(Loop{&stmt, scope, std::move(items), 0, depth, Value()});
  Value loop_value;
  loop_value.kind = Kind::kLoop;
  loop_value.loop = &loop;
  for (; loop.index < loop.items.size(); ++loop.index) {
    Scope* inner = NewScope(scope);
    inner->Set("loop", loop_value);
    RETURN_IF_ERROR(Assign(stmt.target, loop.items[loop.index], inner));
    ASSIGN_OR_RETURN(const Flow flow, ExecBody(stmt.body, inner, out));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

Status Interpreter::Assign(const Target& target, const Value& value, Scope* scope) {
  if (!target.attribute.empty()) {
    const Value object = Lookup(target.name, *scope);
    if (object.kind != Kind::kNamespace) {
      return TypeError("cannot assign attribute on non-namespace object");
    }
    heap_.Charge(2 * sizeof(Value));
    object.dict->Set(Text(target.attribute), value);
    return OkStatus();
  }
  if (target.targets.empty()) {
    scope->Set(target.name, value);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(value));
  if (items.size() != target.targets.size()) {
    return TypeError("cannot unpack " + std::to_string(items.size()) + " values into " +
                     std::to_string(target.targets.size()) + " names");
  }
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(Assign(target.targets[i], items[i], scope));
  }
  return OkStatus();
}

Status Interpreter::ExecSet(const Stmt& stmt, Scope* scope) {
  ASSIGN_OR_RETURN(const Value value, Eval(*stmt.value, *scope));
  return Assign(stmt.target, value, scope);
}

Status Interpreter::ExecSetBlock(const Stmt& stmt, Scope* scope) {
  std::string text;
  RETURN_IF_ERROR(ExecBody(stmt.body, NewScope(scope), &text).status());
  Value value = String(std::move(text));
  if (stmt.value != nullptr) {
    ASSIGN_OR_RETURN(value, EvalFilter(*stmt.value, &value, *scope));
  }
  return Assign(stmt.target, value, scope);
}

Status Interpreter::ExecCall(const Stmt& stmt, Scope* scope, std::string* out) {
  Value caller;
  caller.kind = Kind::kMacro;
  caller.macro = &macros_.emplace_back(Macro{&stmt, scope});
  ASSIGN_OR_RETURN(const Value callee, Eval(*stmt.value->items[0], *scope));
  ASSIGN_OR_RETURN(Arguments args, EvalArgs(stmt.value->args, *scope));
  args.named.emplace_back("caller", caller);
  ASSIGN_OR_RETURN(const Value value, Call(callee, args));
  ASSIGN_OR_RETURN(const std::string_view text, Str(value));
  return Emit(text, out);
}

Status Interpreter::ExecFilter(const Stmt& stmt, Scope* scope, std::string* out) {
  std::string text;
  RETURN_IF_ERROR(ExecBody(stmt.body, NewScope(scope), &text).status());
  const Value input = String(std::move(text));
  ASSIGN_OR_RETURN(const Value value, EvalFilter(*stmt.value, &input, *scope));
  ASSIGN_OR_RETURN(const std::string_view filtered, Str(value));
  return Emit(filtered, out);
}

StatusOr<Interpreter::Flow> Interpreter::ExecWith(const Stmt& stmt, Scope* scope,
                                                  std::string* out) {
  Scope* inner = NewScope(scope);
  for (const auto& [target, expr] : stmt.assignments) {
    ASSIGN_OR_RETURN(const Value value, Eval(*expr, *scope));
    RETURN_IF_ERROR(Assign(target, value, inner));
  }
  return ExecBody(stmt.body, inner, out);
}

// --- expressions ---

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

// --- calls ---

StatusOr<Value> Interpreter::CallFilter(std::string_view name, const Value& input,
                                        const Arguments& args) {
  const Function filter = FindFilter(name);
  if (filter == nullptr) return TypeError("No filter named '" + std::string(name) + "'.");
  RETURN_IF_ERROR(CountSteps(input.IsString() ? static_cast<int64_t>(input.text.size) / 64 : 1));
  return filter(*this, input, args);
}

StatusOr<bool> Interpreter::CallTest(std::string_view name, const Value& input,
                                     const Arguments& args) {
  const Function test = FindTest(name);
  if (test == nullptr) return TypeError("No test named '" + std::string(name) + "'.");
  RETURN_IF_ERROR(CountSteps(1));
  ASSIGN_OR_RETURN(const Value holds, test(*this, input, args));
  return IsTrue(holds);
}

StatusOr<Value> Interpreter::Call(const Value& callee, const Arguments& args) {
  const Level level(&depth_);
  RETURN_IF_ERROR(CountSteps(1));
  switch (callee.kind) {
    case Kind::kCallable:
      if (callee.callable->self.IsString()) {
        RETURN_IF_ERROR(CountSteps(static_cast<int64_t>(callee.callable->self.text.size) / 64));
      }
      return callee.callable->function(*this, callee.callable->self, args);
    case Kind::kMacro:
      return CallMacro(*callee.macro, args);
    case Kind::kLoop:
      return CallLoop(*callee.loop, args);
    case Kind::kUndefined:
      return TypeError(*callee.message);
    default:
      return TypeError("'" + std::string(TypeName(callee)) + "' object is not callable");
  }
}

StatusOr<Value> Interpreter::CallMacro(const Macro& macro, const Arguments& args) {
  const Stmt& definition = *macro.definition;
  const auto& parameters = definition.parameters;
  const std::string who = "macro '" + definition.text + "'";
  if (args.positional.size() > parameters.size() && !definition.uses_varargs) {
    return TypeError(who + " takes not more than " + std::to_string(parameters.size()) +
                     " argument(s)");
  }
  Scope* scope = NewScope(macro.scope);
  for (size_t i = 0; i < std::min(parameters.size(), args.positional.size()); ++i) {
    scope->Set(parameters[i].name, args.positional[i]);
  }
  Value caller = heap_.Undefined("No caller defined");
  Dict rest;
  for (const auto& [name, value] : args.named) {
    const std::string_view wanted = name;
    const auto parameter = std::find_if(parameters.begin(), parameters.end(),
                                        [&](const Parameter& p) { return p.name == wanted; });
    if (parameter != parameters.end()) {
      if (static_cast<size_t>(parameter - parameters.begin()) < args.positional.size()) {
        return TypeError(who + " got two values for argument '" + parameter->name + "'");
      }
      scope->Set(parameter->name, value);
    } else if (name == "caller" && definition.uses_caller) {
      caller = value;
    } else if (definition.uses_kwargs) {
      rest.Set(Text(name), value);
    } else {
      return TypeError(who + " takes no keyword argument '" + std::string(name) + "'");
    }
  }
  for (const Parameter& parameter : parameters) {
    const bool given =
        std::any_of(scope->names.begin(), scope->names.end(),
                    [&](const auto& entry) { return entry.first == parameter.name; });
    if (given) continue;
    Value value = heap_.Undefined("parameter '" + parameter.name + "' was not provided");
    if (parameter.default_value != nullptr) {
      ASSIGN_OR_RETURN(value, Eval(*parameter.default_value, *scope));
    }
    scope->Set(parameter.name, value);
  }
  if (definition.uses_varargs) {
    std::vector<Value> varargs;
    if (args.positional.size() > parameters.size()) {
      varargs.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(parameters.size()),
                     args.positional.end());
    }
    scope->Set("varargs", heap_.NewSequence(Kind::kTuple, std::move(varargs)));
  }
  if (definition.uses_kwargs) scope->Set("kwargs", heap_.NewDict(std::move(rest)));
  // Inside a call block `caller` is that of the macro around it.
  if (definition.uses_caller && definition.kind == StmtKind::kMacro) scope->Set("caller", caller);
  std::string text;
  RETURN_IF_ERROR(ExecBody(definition.body, scope, &text).status());
  return String(std::move(text));
}

StatusOr<Value> Interpreter::CallLoop(const Loop& loop, const Arguments& args) {
  if (!loop.statement->recursive) {
    return TypeError("the loop must have the 'recursive' marker to be called");
  }
  if (args.positional.size() != 1 || !args.named.empty()) {
    return TypeError("loop() takes one argument");
  }
  std::string text;
  RETURN_IF_ERROR(
      ExecFor(*loop.statement, loop.scope, args.positional[0], loop.depth + 1, &text).status());
  return String(std::move(text));
}

// --- attributes and items ---

Value Interpreter::Missing(const Value& object, const Value& name) {
  const std::string type = object.IsNone() ? "None" : std::string(TypeName(object)) + " object";
  if (name.IsString()) {
    return heap_.Undefined("'" + type + "' has no attribute '" + std::string(name.View()) + "'");
  }
  return heap_.Undefined(type + " has no element " + ToText(name));
}

namespace {

StatusOr<Value> LoopCycle(Interpreter&, const Value& self, const Arguments& args) {
  if (args.positional.empty()) return TypeError("no items for cycling given");
  return args.positional[self.loop->index % args.positional.size()];
}

StatusOr<Value> LoopChanged(Interpreter& interpreter, const Value& self, const Arguments& args) {
  const Value now = interpreter.heap().NewSequence(Kind::kTuple, args.positional);
  const bool changed = !self.loop->last_changed.IsGiven() || !IsEqual(self.loop->last_changed, now);
  self.loop->last_changed = now;
  return Bool(changed);
}

StatusOr<Value> CyclerNext(Interpreter&, const Value& self, const Arguments&) {
  Sequence& sequence = *self.sequence;
  const Value value = sequence.items[sequence.next];
  sequence.next = (sequence.next + 1) % sequence.items.size();
  return value;
}

StatusOr<Value> CyclerReset(Interpreter&, const Value& self, const Arguments&) {
  self.sequence->next = 0;
  return None();
}

}  // namespace

Value Interpreter::LoopAttr(const Value& object, std::string_view name) {
  const Loop& loop = *object.loop;
  const auto index = static_cast<int64_t>(loop.index);
  const auto size = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Integer(index + 1);
  if (name == "index0") return Integer(index);
  if (name == "revindex") return Integer(size - index);
  if (name == "revindex0") return Integer(size - index - 1);
  if (name == "first") return Bool(index == 0);
  if (name == "last") return Bool(index + 1 == size);
  if (name == "length") return Integer(size);
  if (name == "depth") return Integer(loop.depth + 1);
  if (name == "depth0") return Integer(loop.depth);
  if (name == "previtem") {
    return index > 0 ? loop.items[index - 1] : heap_.Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < size ? loop.items[index + 1] : heap_.Undefined("there is no next item");
  }
  if (name == "cycle") return heap_.NewCallable("cycle", LoopCycle, object);
  if (name == "changed") return heap_.NewCallable("changed", LoopChanged, object);
  return Missing(object, Text(name));
}

// As Python's getattr; nullopt when there is no such attribute.
std::optional<Value> Interpreter::Attribute(const Value& object, std::string_view name) {
  const bool dunder = name.size() > 4 && name.starts_with("__") && name.ends_with("__");
  if (dunder || IsMutatingMethod(object, name)) {
    return heap_.Undefined("access to attribute '" + std::string(name) + "' of '" +
                           std::string(TypeName(object)) + "' object is unsafe.");
  }
  switch (object.kind) {
    case Kind::kNamespace: {
      const Value* value = object.dict->Find(name);
      if (value == nullptr) return std::nullopt;
      return *value;
    }
    case Kind::kLoop:
      return LoopAttr(object, name);
    case Kind::kCycler:
      if (name == "next") return heap_.NewCallable(name, CyclerNext, object);
      if (name == "reset") return heap_.NewCallable(name, CyclerReset, object);
      if (name == "current") return object.sequence->items[object.sequence->next];
      return std::nullopt;
    case Kind::kMacro:
      if (name == "name") return Text(object.macro->definition->text);
      return std::nullopt;
    case Kind::kTuple:
      // What groupby() yields has names for its two items.
      if (object.sequence->name == "group" && name == "grouper") return object.sequence->items[0];
      if (object.sequence->name == "group" && name == "list") return object.sequence->items[1];
      break;
    default:
      break;
  }
  const Function method = FindMethod(object, name);
  if (method == nullptr) return std::nullopt;
  return heap_.NewCallable(name, method, object);
}

// As Python's object[index]; nullopt where that raises.
std::optional<Value> Interpreter::Item(const Value& object, const Value& index) {
  if (object.IsDict()) {
    const Value* value =
        index.IsString() ? object.dict->Find(index.View()) : object.dict->Find(index);
    if (value == nullptr) return std::nullopt;
    return *value;
  }
  if (!index.IsInteger()) return std::nullopt;
  const bool indexable = object.IsString() || object.kind == Kind::kList ||
                         object.kind == Kind::kTuple || object.kind == Kind::kRange;
  if (!indexable) return std::nullopt;
  Int at = index.AsInt();
  if (!object.IsString()) {
    const auto& items = object.sequence->items;
    if (at < 0) at += static_cast<Int>(items.size());
    if (at < 0 || at >= static_cast<Int>(items.size())) return std::nullopt;
    return items[static_cast<size_t>(at)];
  }
  steps_left_ -= static_cast<int64_t>(object.text.size) / 16;
  const auto chars = SplitChars(object.View());
  if (at < 0) at += static_cast<Int>(chars.size());
  if (at < 0 || at >= static_cast<Int>(chars.size())) return std::nullopt;
  return Text(chars[static_cast<size_t>(at)]);
}

StatusOr<Value> Interpreter::GetAttr(const Value& object, std::string_view name) {
  if (object.IsUndefined()) return TypeError(*object.message);
  if (const auto value = Attribute(object, name); value.has_value()) return *value;
  if (const auto value = Item(object, Text(name)); value.has_value()) return *value;
  return Missing(object, Text(name));
}

StatusOr<Value> Interpreter::GetItem(const Value& object, const Value& index) {
  if (object.IsUndefined()) return TypeError(*object.message);
  if (const auto value = Item(object, index); value.has_value()) return *value;
  if (index.IsString()) {
    if (const auto value = Attribute(object, index.View()); value.has_value()) return *value;
  }
  return Missing(object, index);
}

StatusOr<std::vector<Value>> Interpreter::Items(const Value& value) {
  std::vector<Value> items;
  switch (value.kind) {
    case Kind::kUndefined:
      return items;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kView:
      items = value.sequence->items;
      break;
    case Kind::kGenerator:
      items.assign(
          value.sequence->items.begin() + static_cast<std::ptrdiff_t>(value.sequence->next),
          value.sequence->items.end());
      value.sequence->next = value.sequence->items.size();
      break;
    case Kind::kDict:
      for (const auto& item : value.dict->items) items.push_back(item.first);
      break;
    case Kind::kString:
      for (const std::string_view c : SplitChars(value.View())) items.push_back(Text(c));
      break;
    default:
      return TypeError("'" + std::string(TypeName(value)) + "' object is not iterable");
  }
  RETURN_IF_ERROR(CountSteps(static_cast<int64_t>(items.size()) / 4));
  return items;
}

}  // namespace tandem::jinja
