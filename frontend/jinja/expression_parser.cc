#include "frontend/jinja/expression_parser.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tandem::jinja {

std::unique_ptr<Expr> ExpressionParser::New(ExprKind kind, int line) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

StatusOr<ExprPtr> ExpressionParser::Done(std::unique_ptr<Expr> expr) const {
  int depth = 0;
  const auto look = [&](const ExprPtr& child) {
    if (child != nullptr) depth = std::max(depth, child->depth);
  };
  for (const auto& item : expr->items) look(item);
  for (const auto& item : expr->args.positional) look(item);
  for (const auto& item : expr->args.named) look(item.second);
  look(expr->args.star);
  look(expr->args.double_star);
  expr->depth = depth + 1;
  if (expr->depth > kMaxTreeDepth) return TooDeep();
  return ExprPtr(std::move(expr));
}

StatusOr<ExprPtr> ExpressionParser::Binary(ExprKind kind, std::string name, ExprPtr left,
                                           ExprPtr right) {
  auto expr = New(kind, left->line);
  expr->name = std::move(name);
  expr->items.push_back(std::move(left));
  expr->items.push_back(std::move(right));
  return Done(std::move(expr));
}

StatusOr<ExprPtr> ExpressionParser::ParseExpression() {
  const Nesting nesting(this);
  if (nesting.TooDeep()) return TooDeep();
  ASSIGN_OR_RETURN(ExprPtr left, ParseOr());
  while (IsName("if")) {
    auto expr = New(ExprKind::kIf, Current().line);
    Skip();
    ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    expr->items.push_back(std::move(left));
    expr->items.push_back(std::move(condition));
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(ExprPtr otherwise, ParseExpression());
      expr->items.push_back(std::move(otherwise));
    }
    ASSIGN_OR_RETURN(left, Done(std::move(expr)));
  }
  return left;
}

StatusOr<ExprPtr> ExpressionParser::ParseOr() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (SkipName("or")) {
    ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    ASSIGN_OR_RETURN(left, Binary(ExprKind::kOr, "", std::move(left), std::move(right)));
  }
  return left;
}

StatusOr<ExprPtr> ExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (SkipName("and")) {
    ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    ASSIGN_OR_RETURN(left, Binary(ExprKind::kAnd, "", std::move(left), std::move(right)));
  }
  return left;
}

StatusOr<ExprPtr> ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Nesting nesting(this);
  if (nesting.TooDeep()) return TooDeep();
  auto expr = New(ExprKind::kNot, Current().line);
  Skip();
  ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  expr->items.push_back(std::move(operand));
  return Done(std::move(expr));
}

std::string ExpressionParser::TakeComparison() {
  for (const char* text : {"==", "!=", "<", "<=", ">", ">="}) {
    if (SkipOperator(text)) return text;
  }
  if (SkipName("in")) return "in";
  if (IsName("not") && Ahead().kind == TokenKind::kName && Ahead().text == "in") {
    Skip();
    Skip();
    return "not in";
  }
  return "";
}

StatusOr<ExprPtr> ExpressionParser::ParseCompare() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseSum());
  std::string comparison = TakeComparison();
  if (comparison.empty()) return left;
  auto expr = New(ExprKind::kCompare, left->line);
  expr->items.push_back(std::move(left));
  for (; !comparison.empty(); comparison = TakeComparison()) {
    expr->operators.push_back(comparison);
    ASSIGN_OR_RETURN(ExprPtr right, ParseSum());
    expr->items.push_back(std::move(right));
  }
  return Done(std::move(expr));
}

StatusOr<ExprPtr> ExpressionParser::ParseLeftBinary(ParseFunction parse,
                                                    std::initializer_list<const char*> operators) {
  ASSIGN_OR_RETURN(ExprPtr left, (this->*parse)());
  while (true) {
    const auto found = std::find_if(operators.begin(), operators.end(),
                                    [this](const char* text) { return IsOperator(text); });
    if (found == operators.end()) return left;
    Skip();
    ASSIGN_OR_RETURN(ExprPtr right, (this->*parse)());
    ASSIGN_OR_RETURN(left, Binary(ExprKind::kBinary, *found, std::move(left), std::move(right)));
  }
}

StatusOr<ExprPtr> ExpressionParser::ParseSum() {
  return ParseLeftBinary(&ExpressionParser::ParseConcat, {"+", "-"});
}

StatusOr<ExprPtr> ExpressionParser::ParseProduct() {
  return ParseLeftBinary(&ExpressionParser::ParsePower, {"*", "/", "//", "%"});
}

StatusOr<ExprPtr> ExpressionParser::ParsePower() {
  return ParseLeftBinary(&ExpressionParser::ParseUnaryWithFilters, {"**"});
}

StatusOr<ExprPtr> ExpressionParser::ParseConcat() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseProduct());
  if (!IsOperator("~")) return left;
  auto expr = New(ExprKind::kConcat, left->line);
  expr->items.push_back(std::move(left));
  while (SkipOperator("~")) {
    ASSIGN_OR_RETURN(ExprPtr right, ParseProduct());
    expr->items.push_back(std::move(right));
  }
  return Done(std::move(expr));
}

StatusOr<ExprPtr> ExpressionParser::ParseUnaryWithFilters() { return ParseUnary(true); }

StatusOr<ExprPtr> ExpressionParser::ParseUnary(bool with_filters) {
  const Nesting nesting(this);
  if (nesting.TooDeep()) return TooDeep();
  ExprPtr result;
  if (IsOperator("-") || IsOperator("+")) {
    auto expr = New(ExprKind::kUnary, Current().line);
    expr->name = Current().text;
    Skip();
    ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary(false));
    expr->items.push_back(std::move(operand));
    ASSIGN_OR_RETURN(result, Done(std::move(expr)));
  } else {
    ASSIGN_OR_RETURN(result, ParsePrimary());
  }
  ASSIGN_OR_RETURN(result, ParsePostfix(std::move(result)));
  if (!with_filters) return result;
  return ParseFiltersAndTests(std::move(result));
}

StatusOr<ExprPtr> ExpressionParser::ParsePrimary() {
  const Token token = Current();
  switch (token.kind) {
    case TokenKind::kName:
      Skip();
      return Done(NameOrConstant(token));
    case TokenKind::kString: {
      auto expr = New(ExprKind::kString, token.line);
      for (; Is(TokenKind::kString); Skip()) expr->name += Current().text;
      return Done(std::move(expr));
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return ParseNumber();
    case TokenKind::kOperator:
      if (token.text == "(") {
        Skip();
        ASSIGN_OR_RETURN(ExprPtr inside, ParseTuple(TupleOf::kExpressions, true));
        RETURN_IF_ERROR(ExpectOperator(")"));
        return inside;
      }
      if (token.text == "[") return ParseList();
      if (token.text == "{") return ParseDict();
      break;
    default:
      break;
  }
  return Fail("unexpected '" + Describe(token) + "'");
}

std::unique_ptr<Expr> ExpressionParser::NameOrConstant(const Token& token) {
  if (token.text == "none" || token.text == "None") return New(ExprKind::kNone, token.line);
  const bool is_true = token.text == "true" || token.text == "True";
  if (is_true || token.text == "false" || token.text == "False") {
    auto expr = New(ExprKind::kBool, token.line);
    expr->integer = is_true ? 1 : 0;
    return expr;
  }
  auto expr = New(ExprKind::kName, token.line);
  expr->name = token.text;
  return expr;
}

StatusOr<ExprPtr> ExpressionParser::ParseNumber() {
  const std::string& text = Current().text;
  auto expr = New(ExprKind::kInteger, Current().line);
  if (Is(TokenKind::kFloat)) {
    expr->kind = ExprKind::kFloat;
    expr->real = ParseFloat(text).value_or(0);
  } else {
    const char prefix =
        text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
    const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    const auto value = ParseInt(text, base);
    if (!value.has_value()) return Fail("integer " + text + " is too large");
    expr->integer = *value;
  }
  Skip();
  return Done(std::move(expr));
}

bool ExpressionParser::AtTupleEnd() const {
  return Is(TokenKind::kVariableEnd) || Is(TokenKind::kBlockEnd) || Is(TokenKind::kEnd) ||
         IsOperator(")");
}

StatusOr<ExprPtr> ExpressionParser::ParseTuple(TupleOf of, bool in_parentheses) {
  auto expr = New(ExprKind::kTuple, Current().line);
  bool is_tuple = false;
  while (!AtTupleEnd()) {
    ASSIGN_OR_RETURN(ExprPtr item, of == TupleOf::kExpressions     ? ParseExpression()
                                   : of == TupleOf::kUnconditional ? ParseOr()
                                                                   : ParsePrimary());
    expr->items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (expr->items.size() == 1) return ExprPtr(std::move(expr->items[0]));
    if (!in_parentheses) {
      return Fail("Expected an expression, got '" + Describe(Current()) + "'");
    }
  }
  return Done(std::move(expr));
}

StatusOr<ExprPtr> ExpressionParser::ParseList() {
  auto expr = New(ExprKind::kList, Current().line);
  Skip();
  while (!IsOperator("]")) {
    if (!expr->items.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator("]")) break;
    ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    expr->items.push_back(std::move(item));
  }
  RETURN_IF_ERROR(ExpectOperator("]"));
  return Done(std::move(expr));
}

StatusOr<ExprPtr> ExpressionParser::ParseDict() {
  auto expr = New(ExprKind::kDict, Current().line);
  Skip();
  while (!IsOperator("}")) {
    if (!expr->items.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator("}")) break;
    ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    RETURN_IF_ERROR(ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    expr->items.push_back(std::move(key));
    expr->items.push_back(std::move(value));
  }
  RETURN_IF_ERROR(ExpectOperator("}"));
  return Done(std::move(expr));
}

StatusOr<ExprPtr> ExpressionParser::ParsePostfix(ExprPtr object) {
  while (true) {
    if (IsOperator(".")) {
      ASSIGN_OR_RETURN(object, ParseAttribute(std::move(object)));
    } else if (IsOperator("[")) {
      ASSIGN_OR_RETURN(object, ParseSubscript(std::move(object)));
    } else if (IsOperator("(")) {
      ASSIGN_OR_RETURN(object, ParseCall(std::move(object)));
    } else {
      return object;
    }
  }
}

StatusOr<ExprPtr> ExpressionParser::ParseFiltersAndTests(ExprPtr object) {
  while (true) {
    if (IsOperator("|")) {
      ASSIGN_OR_RETURN(object, ParseFilter(std::move(object)));
    } else if (IsName("is")) {
      ASSIGN_OR_RETURN(object, ParseTest(std::move(object)));
    } else if (IsOperator("(")) {
      ASSIGN_OR_RETURN(object, ParseCall(std::move(object)));
    } else {
      return object;
    }
  }
}

StatusOr<ExprPtr> ExpressionParser::ParseAttribute(ExprPtr object) {
  auto expr = New(ExprKind::kGetAttr, Current().line);
  Skip();
  const Token token = Current();
  expr->items.push_back(std::move(object));
  if (Is(TokenKind::kName)) {
    expr->name = token.text;
    Skip();
  } else if (Is(TokenKind::kInteger)) {
    expr->kind = ExprKind::kGetItem;
    ASSIGN_OR_RETURN(ExprPtr index, ParseNumber());
    expr->items.push_back(std::move(index));
  } else {
    return Unexpected("name or number");
  }
  return Done(std::move(expr));
}

StatusOr<ExprPtr> ExpressionParser::ParseSubscript(ExprPtr object) {
  auto expr = New(ExprKind::kGetItem, Current().line);
  Skip();
  expr->items.push_back(std::move(object));
  std::vector<ExprPtr> indexes;
  while (!IsOperator("]")) {
    if (!indexes.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    ASSIGN_OR_RETURN(ExprPtr index, ParseIndex());
    indexes.push_back(std::move(index));
  }
  RETURN_IF_ERROR(ExpectOperator("]"));
  if (indexes.empty()) return Fail("expected an index");
  if (indexes.size() > 1) {
    auto tuple = New(ExprKind::kTuple, expr->line);
    tuple->items = std::move(indexes);
    indexes.clear();
    ASSIGN_OR_RETURN(ExprPtr index, Done(std::move(tuple)));
    indexes.push_back(std::move(index));
  }
  expr->items.push_back(std::move(indexes[0]));
  return Done(std::move(expr));
}

StatusOr<ExprPtr> ExpressionParser::ParseIndex() {
  auto slice = New(ExprKind::kSlice, Current().line);
  slice->items.resize(3);
  bool is_slice = false;
  for (size_t part = 0; part < 3; ++part) {
    if (!IsOperator(":") && !IsOperator("]") && !IsOperator(",")) {
      ASSIGN_OR_RETURN(slice->items[part], ParseExpression());
    }
    if (part == 2 || !SkipOperator(":")) break;
    is_slice = true;
  }
  if (is_slice) return Done(std::move(slice));
  if (slice->items[0] == nullptr) return Fail("expected an index");
  return ExprPtr(std::move(slice->items[0]));
}

StatusOr<CallArgs> ExpressionParser::ParseArgs() {
  CallArgs args;
  RETURN_IF_ERROR(ExpectOperator("("));
  bool first = true;
  while (!IsOperator(")")) {
    if (!first) RETURN_IF_ERROR(ExpectOperator(","));
    first = false;
    if (IsOperator(")")) break;
    if (SkipOperator("**")) {
      if (args.double_star != nullptr) return Fail("invalid syntax for function call expression");
      ASSIGN_OR_RETURN(args.double_star, ParseExpression());
    } else if (SkipOperator("*")) {
      if (args.star != nullptr || args.double_star != nullptr) {
        return Fail("invalid syntax for function call expression");
      }
      ASSIGN_OR_RETURN(args.star, ParseExpression());
    } else if (Is(TokenKind::kName) && Ahead().kind == TokenKind::kOperator &&
               Ahead().text == "=") {
      std::string name = Current().text;
      Skip();
      Skip();
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      args.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!args.named.empty() || args.double_star != nullptr) {
        return Fail("invalid syntax for function call expression");
      }
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      args.positional.push_back(std::move(value));
    }
  }
  RETURN_IF_ERROR(ExpectOperator(")"));
  return args;
}

StatusOr<ExprPtr> ExpressionParser::ParseCall(ExprPtr callee) {
  auto expr = New(ExprKind::kCall, callee->line);
  expr->items.push_back(std::move(callee));
  ASSIGN_OR_RETURN(expr->args, ParseArgs());
  return Done(std::move(expr));
}

StatusOr<std::string> ExpressionParser::ParseDottedName() {
  ASSIGN_OR_RETURN(std::string name, ExpectName());
  while (SkipOperator(".")) {
    ASSIGN_OR_RETURN(const std::string part, ExpectName());
    name += "." + part;
  }
  return name;
}

StatusOr<ExprPtr> ExpressionParser::ParseFilter(ExprPtr input) {
  SkipOperator("|");
  auto expr = New(ExprKind::kFilter, Current().line);
  if (input != nullptr) expr->items.push_back(std::move(input));
  ASSIGN_OR_RETURN(expr->name, ParseDottedName());
  if (IsOperator("(")) {
    ASSIGN_OR_RETURN(expr->args, ParseArgs());
  }
  return Done(std::move(expr));
}

StatusOr<ExprPtr> ExpressionParser::ParseFilterChain(ExprPtr chain) {
  ASSIGN_OR_RETURN(chain, ParseFilter(std::move(chain)));
  while (IsOperator("|")) {
    ASSIGN_OR_RETURN(chain, ParseFilter(std::move(chain)));
  }
  return chain;
}

bool ExpressionParser::AtTestArgument() const {
  switch (Current().kind) {
    case TokenKind::kName:
      return !IsName("else") && !IsName("or") && !IsName("and");
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    case TokenKind::kOperator:
      return IsOperator("(") || IsOperator("[") || IsOperator("{");
    default:
      return false;
  }
}

StatusOr<ExprPtr> ExpressionParser::ParseTest(ExprPtr input) {
  const int line = Current().line;
  Skip();
  const bool negated = SkipName("not");
  auto expr = New(ExprKind::kTest, line);
  expr->items.push_back(std::move(input));
  ASSIGN_OR_RETURN(expr->name, ParseDottedName());
  if (IsOperator("(")) {
    ASSIGN_OR_RETURN(expr->args, ParseArgs());
  } else if (AtTestArgument()) {
    if (IsName("is")) return Fail("You cannot chain multiple tests with is");
    ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    expr->args.positional.push_back(std::move(argument));
  }
  ASSIGN_OR_RETURN(ExprPtr test, Done(std::move(expr)));
  if (!negated) return test;
  auto negation = New(ExprKind::kNot, line);
  negation->items.push_back(std::move(test));
  return Done(std::move(negation));
}

}  // namespace tandem::jinja
