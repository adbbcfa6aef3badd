#include "frontend/jinja/interpreter.h"

#include <utility>

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
  // The text of raise_exception goes to the client unchanged.
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
                                                      const std::vector<Value>& items) {
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
    ASSIGN_OR_RETURN(items, FilterItems(stmt, scope, items));
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

}  // namespace tandem::jinja
