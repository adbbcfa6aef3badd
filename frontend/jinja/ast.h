#pragma once

// The parsed form of a template. Built by the parser, then immutable: any number of renders may
// walk it at once. A node owns its children. `depth` bounds the recursion of everything that walks.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontend/jinja/number.h"

namespace tandem::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *args
  ExprPtr double_star;  // **kwargs
};

enum class ExprKind {
  kNone,
  kBool,     // integer
  kInteger,  // integer
  kFloat,    // real
  kString,   // name
  kName,     // name
  kTuple,    // items
  kList,     // items
  kDict,     // items: key, value, key, value, ...
  kIf,       // items: then, condition, [else]
  kOr,       // items: left, right
  kAnd,      // items: left, right
  kNot,      // items: operand
  kCompare,  // items: first, then one for each of `operators`
  kBinary,   // name: operator; items: left, right
  kConcat,   // items
  kUnary,    // name: "-" or "+"; items: operand
  kGetAttr,  // items: object; name
  kGetItem,  // items: object, index
  kSlice,    // items: start, stop, step, each may be null; only inside kGetItem
  kCall,     // items: callee; args
  kFilter,   // items: input, or none inside {% filter %}; name; args
  kTest,     // items: input; name; args
};

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;
  std::string name;
  Int integer = 0;
  double real = 0;
  std::vector<ExprPtr> items;
  std::vector<std::string> operators;
  CallArgs args;
};

// What is assigned to: a name, several, or an attribute of a namespace.
struct Target {
  std::string name;
  std::string attribute;        // of the namespace `name`; empty: the name itself
  std::vector<Target> targets;  // not empty: unpack into these
};

struct Stmt;
using Body = std::vector<std::unique_ptr<const Stmt>>;

enum class StmtKind {
  kText,      // text
  kPrint,     // value
  kIf,        // branches, else_body
  kFor,       // target, value: iterable, condition, recursive, body, else_body
  kSet,       // target, value
  kSetBlock,  // target, body, value: chain of filters or null
  kMacro,     // text: name, parameters, body
  kCall,      // value: the call, parameters of caller, body
  kFilter,    // value: chain of filters, body
  kWith,      // assignments, body
  kScope,     // body in a scope of its own: block, generation, autoescape
  kBreak,
  kContinue,
  kForbidden,  // text: why (include, import, extends)
};

struct Parameter {
  std::string name;
  ExprPtr default_value;  // may be null
};

struct Stmt {
  StmtKind kind;
  int line;
  std::string text;
  Target target;
  ExprPtr value;
  ExprPtr condition;
  bool recursive = false;
  // Of macros: which of the names that take the rest are mentioned in the body.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
  std::vector<Parameter> parameters;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body body;
  Body else_body;
};

struct Template {
  Body body;
};

}  // namespace tandem::jinja
