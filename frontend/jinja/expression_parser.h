#pragma once

// The half of the parser that reads expressions. Only parser.cc builds on it. Thread: one
// parse. Each method starts at the current token and leaves the next one current.

#include <initializer_list>
#include <memory>
#include <string>

#include "common/status.h"
#include "frontend/jinja/ast.h"
#include "frontend/jinja/token_cursor.h"

namespace tandem::jinja {

class ExpressionParser : protected TokenCursor {
 public:
  using TokenCursor::TokenCursor;

 protected:
  StatusOr<ExprPtr> ParseExpression();

  enum class TupleOf { kExpressions, kUnconditional, kPrimaries };
  // One expression, or several with commas between them: a tuple.
  StatusOr<ExprPtr> ParseTuple(TupleOf of, bool in_parentheses);
  StatusOr<ExprPtr> ParseFilterChain(ExprPtr chain);

 private:
  // Nodes.
  std::unique_ptr<Expr> New(ExprKind kind, int line);
  // Returns a finished node, whose depth is known now.
  StatusOr<ExprPtr> Done(std::unique_ptr<Expr> expr) const;
  StatusOr<ExprPtr> Binary(ExprKind kind, std::string name, ExprPtr left, ExprPtr right);

  // Expressions, loosest binding first.
  StatusOr<ExprPtr> ParseOr();
  StatusOr<ExprPtr> ParseAnd();
  StatusOr<ExprPtr> ParseNot();
  // Reads the comparison operator at the cursor; empty when there is none.
  std::string TakeComparison();
  StatusOr<ExprPtr> ParseCompare();
  using ParseFunction = StatusOr<ExprPtr> (ExpressionParser::*)();
  StatusOr<ExprPtr> ParseLeftBinary(ParseFunction parse,
                                    std::initializer_list<const char*> operators);
  StatusOr<ExprPtr> ParseSum();
  StatusOr<ExprPtr> ParseProduct();
  StatusOr<ExprPtr> ParsePower();
  StatusOr<ExprPtr> ParseConcat();
  StatusOr<ExprPtr> ParseUnaryWithFilters();
  StatusOr<ExprPtr> ParseUnary(bool with_filters);

  // Operands.
  StatusOr<ExprPtr> ParsePrimary();
  std::unique_ptr<Expr> NameOrConstant(const Token& token);
  StatusOr<ExprPtr> ParseNumber();
  bool AtTupleEnd() const;
  StatusOr<ExprPtr> ParseList();
  StatusOr<ExprPtr> ParseDict();

  // What may follow an operand.
  StatusOr<ExprPtr> ParsePostfix(ExprPtr object);
  StatusOr<ExprPtr> ParseFiltersAndTests(ExprPtr object);
  StatusOr<ExprPtr> ParseAttribute(ExprPtr object);
  StatusOr<ExprPtr> ParseSubscript(ExprPtr object);
  // An index or a slice a:b:c with any part left out.
  StatusOr<ExprPtr> ParseIndex();
  StatusOr<CallArgs> ParseArgs();
  StatusOr<ExprPtr> ParseCall(ExprPtr callee);
  StatusOr<std::string> ParseDottedName();
  // At "|", or with no input at the first filter's name of a {% filter %}.
  StatusOr<ExprPtr> ParseFilter(ExprPtr input);
  bool AtTestArgument() const;
  StatusOr<ExprPtr> ParseTest(ExprPtr input);
};

}  // namespace tandem::jinja
