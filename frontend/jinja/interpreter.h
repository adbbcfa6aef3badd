#pragma once

// Renders one parsed template once: scopes, statements, expressions, calls.
// Thread: one; make an Interpreter per render. Ownership: borrows the tree and the variables' JSON;
// owns all values of the render. Every entry counts a step and a level; over a limit, or when the
// template does something wrong, the Status travels up and the render ends.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "frontend/jinja/ast.h"
#include "frontend/jinja/value.h"

namespace tandem::jinja {

struct RenderLimits {
  int64_t max_steps;
  int64_t max_output_bytes;
  int64_t max_value_bytes;
  int max_depth;
};

// Names of one block; a name that it lacks is looked up in its parent.
struct Scope {
  const Scope* parent;
  std::vector<std::pair<std::string_view, Value>> names;

  void Set(std::string_view name, const Value& value);
};

struct Macro {
  const Stmt* definition;
  const Scope* scope;  // where it was defined: its free names are looked up there
};

struct Loop {
  const Stmt* statement;
  const Scope* scope;  // around the loop, for a recursive call
  std::vector<Value> items;
  size_t index = 0;
  int depth = 0;  // of recursive loops, from 0
  Value last_changed;
};

class Interpreter {
 public:
  Interpreter(const RenderLimits& limits, int64_t now_s);

  StatusOr<std::string> Render(const Template& source, const Dict& variables);

  // For functions, filters, tests and methods:
  Heap& heap() { return heap_; }
  int64_t now_s() const { return now_s_; }
  StatusOr<Value> Call(const Value& callee, const Arguments& args);
  StatusOr<Value> CallFilter(std::string_view name, const Value& input, const Arguments& args);
  StatusOr<bool> CallTest(std::string_view name, const Value& input, const Arguments& args);
  StatusOr<Value> GetAttr(const Value& object, std::string_view name);
  StatusOr<Value> GetItem(const Value& object, const Value& index);
  // The items of anything that can be iterated; consumes a generator.
  StatusOr<std::vector<Value>> Items(const Value& value);
  // The value's text as str() gives it; lives as long as the render.
  StatusOr<std::string_view> Str(const Value& value);
  Status CountSteps(int64_t steps);
  Value String(std::string text) { return heap_.String(std::move(text)); }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  struct Level {  // counts one level of recursion while it lives
    explicit Level(int* counter) : depth(counter) { ++*depth; }
    ~Level() { --*depth; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    int* depth;
  };

  StatusOr<Flow> ExecBody(const Body& body, Scope* scope, std::string* out);
  StatusOr<Flow> Exec(const Stmt& stmt, Scope* scope, std::string* out);
  StatusOr<Flow> ExecIf(const Stmt& stmt, Scope* scope, std::string* out);
  StatusOr<Flow> ExecFor(const Stmt& stmt, const Scope* scope, const Value& iterable, int depth,
                         std::string* out);
  StatusOr<std::vector<Value>> FilterItems(const Stmt& stmt, const Scope* scope,
                                           const std::vector<Value>& items);
  Status ExecSet(const Stmt& stmt, Scope* scope);
  Status ExecSetBlock(const Stmt& stmt, Scope* scope);
  Status ExecCall(const Stmt& stmt, Scope* scope, std::string* out);
  Status ExecFilter(const Stmt& stmt, Scope* scope, std::string* out);
  StatusOr<Flow> ExecWith(const Stmt& stmt, Scope* scope, std::string* out);
  Status Assign(const Target& target, const Value& value, Scope* scope);
  Status Emit(std::string_view text, std::string* out);

  StatusOr<Value> Eval(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalKind(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalSequence(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalDict(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalIf(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalLogic(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalCompare(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalBinary(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalConcat(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalUnary(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalGetAttr(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalGetItem(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalSlice(const Value& object, const Expr& slice, const Scope& scope);
  StatusOr<Value> EvalCall(const Expr& expr, const Scope& scope);
  StatusOr<Value> EvalFilter(const Expr& expr, const Value* input, const Scope& scope);
  StatusOr<Value> EvalTest(const Expr& expr, const Scope& scope);
  StatusOr<Arguments> EvalArgs(const CallArgs& args, const Scope& scope);
  StatusOr<Value> CallMacro(const Macro& macro, const Arguments& args);
  StatusOr<Value> CallLoop(const Loop& loop, const Arguments& args);
  Value LoopAttr(const Value& object, std::string_view name);
  std::optional<Value> Attribute(const Value& object, std::string_view name);
  std::optional<Value> Item(const Value& object, const Value& index);
  Value Missing(const Value& object, const Value& name);
  Value Lookup(std::string_view name, const Scope& scope);

  Scope* NewScope(const Scope* parent);

  RenderLimits limits_;
  int64_t now_s_;
  Heap heap_;
  std::deque<Scope> scopes_;
  std::deque<Macro> macros_;
  std::deque<Loop> loops_;
  int64_t steps_left_;
  int depth_ = 0;
  int error_line_ = 0;  // of the first error
};

}  // namespace tandem::jinja
