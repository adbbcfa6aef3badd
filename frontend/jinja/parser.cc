#include "frontend/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include "frontend/jinja/expression_parser.h"

namespace tandem::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  StatusOr<std::unique_ptr<const Template>> Run() {
    auto result = std::make_unique<Template>();
    ASSIGN_OR_RETURN(result->body, ParseBody({}));
    return std::unique_ptr<const Template>(std::move(result));
  }

 private:
  bool AtEndTag(std::initializer_list<const char*> end_tags) const {
    return std::any_of(end_tags.begin(), end_tags.end(),
                       [this](const char* tag) { return IsName(tag); });
  }

  // Statements up to one of the end tags, whose name is then the current token; up to the end of
  // the template when there are none.
  StatusOr<Body> ParseBody(std::initializer_list<const char*> end_tags) {
    const Nesting nesting(this);
    if (nesting.TooDeep()) return TooDeep();
    Body body;
    while (!Is(TokenKind::kEnd)) {
      auto stmt = std::make_unique<Stmt>();
      stmt->line = Current().line;
      if (Is(TokenKind::kText)) {
        stmt->kind = StmtKind::kText;
        stmt->text = Current().text;
        Skip();
      } else if (Is(TokenKind::kVariableBegin)) {
        Skip();
        stmt->kind = StmtKind::kPrint;
        ASSIGN_OR_RETURN(stmt->value, ParseTuple(TupleOf::kExpressions, false));
        if (!Is(TokenKind::kVariableEnd)) return Unexpected("end of print statement");
        Skip();
      } else {
        Skip();  // "{%"
        if (AtEndTag(end_tags)) return body;
        RETURN_IF_ERROR(ParseStatement(stmt.get()));
      }
      body.push_back(std::move(stmt));
    }
    if (end_tags.size() != 0) {
      return Fail("Unexpected end of template. Looking for '" + std::string(*end_tags.begin()) +
                  "'");
    }
    return body;
  }

  // A body with its end tag: "... {% endX %}".
  StatusOr<Body> ParseBodyUntil(const char* end_tag) {
    RETURN_IF_ERROR(ExpectBlockEnd());
    ASSIGN_OR_RETURN(Body body, ParseBody({end_tag}));
    Skip();
    return body;
  }

  Status ParseStatement(Stmt* stmt) {
    ASSIGN_OR_RETURN(const std::string tag, ExpectName());
    if (tag == "if") return ParseIf(stmt);
    if (tag == "for") return ParseFor(stmt);
    if (tag == "set") return ParseSet(stmt);
    if (tag == "macro") return ParseMacro(stmt);
    if (tag == "call") return ParseCallBlock(stmt);
    if (tag == "filter") return ParseFilterBlock(stmt);
    if (tag == "with") return ParseWith(stmt);
    if (tag == "block" || tag == "generation" || tag == "autoescape") return ParseScope(tag, stmt);
    if (tag == "break" || tag == "continue") {
      if (loop_depth_ == 0) return Fail("'" + tag + "' outside loop");
      stmt->kind = tag == "break" ? StmtKind::kBreak : StmtKind::kContinue;
      return ExpectBlockEnd();
    }
    if (tag == "print") {
      stmt->kind = StmtKind::kPrint;
      ASSIGN_OR_RETURN(stmt->value, ParseTuple(TupleOf::kExpressions, false));
      return ExpectBlockEnd();
    }
    if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
      stmt->kind = StmtKind::kForbidden;
      stmt->text = "no other template can be loaded by {% " + tag + " %}";
      while (!Is(TokenKind::kBlockEnd) && !Is(TokenKind::kEnd)) Skip();
      return ExpectBlockEnd();
    }
    return Fail("Encountered unknown tag '" + tag + "'.");
  }

  Status ParseIf(Stmt* stmt) {
    stmt->kind = StmtKind::kIf;
    while (true) {
      ASSIGN_OR_RETURN(ExprPtr condition, ParseTuple(TupleOf::kUnconditional, false));
      RETURN_IF_ERROR(ExpectBlockEnd());
      ASSIGN_OR_RETURN(Body body, ParseBody({"elif", "else", "endif"}));
      stmt->branches.emplace_back(std::move(condition), std::move(body));
      if (SkipName("elif")) continue;
      if (SkipName("else")) {
        ASSIGN_OR_RETURN(stmt->else_body, ParseBodyUntil("endif"));
      } else {
        Skip();
      }
      return ExpectBlockEnd();
    }
  }

  StatusOr<Target> ParseTargetName() {
    Target target;
    if (SkipOperator("(")) {
      ASSIGN_OR_RETURN(target, ParseTarget());
      RETURN_IF_ERROR(ExpectOperator(")"));
      return target;
    }
    ASSIGN_OR_RETURN(target.name, ExpectName());
    static const std::set<std::string> kReserved = {"true", "false", "none",
                                                    "True", "False", "None"};
    if (kReserved.count(target.name) != 0) return Fail("can't assign to '" + target.name + "'");
    return target;
  }

  StatusOr<Target> ParseTarget() {
    const Nesting nesting(this);
    if (nesting.TooDeep()) return TooDeep();
    ASSIGN_OR_RETURN(Target first, ParseTargetName());
    if (!IsOperator(",")) return first;
    Target tuple;
    tuple.targets.push_back(std::move(first));
    while (SkipOperator(",")) {
      if (!Is(TokenKind::kName) && !IsOperator("(")) break;
      if (IsName("in")) break;
      ASSIGN_OR_RETURN(Target next, ParseTargetName());
      tuple.targets.push_back(std::move(next));
    }
    return tuple;
  }

  Status ParseFor(Stmt* stmt) {
    stmt->kind = StmtKind::kFor;
    ASSIGN_OR_RETURN(stmt->target, ParseTarget());
    if (!SkipName("in")) return Unexpected("in");
    ASSIGN_OR_RETURN(stmt->value, ParseTuple(TupleOf::kUnconditional, false));
    if (SkipName("if")) {
      ASSIGN_OR_RETURN(stmt->condition, ParseExpression());
    }
    stmt->recursive = SkipName("recursive");
    RETURN_IF_ERROR(ExpectBlockEnd());
    ++loop_depth_;
    auto body = ParseBody({"endfor", "else"});
    --loop_depth_;
    if (!body.ok()) return body.status();
    stmt->body = *std::move(body);
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(stmt->else_body, ParseBodyUntil("endfor"));
    } else {
      Skip();
    }
    return ExpectBlockEnd();
  }

  Status ParseSet(Stmt* stmt) {
    if (Is(TokenKind::kName) && Ahead().kind == TokenKind::kOperator && Ahead().text == ".") {
      ASSIGN_OR_RETURN(stmt->target.name, ExpectName());
      Skip();
      ASSIGN_OR_RETURN(stmt->target.attribute, ExpectName());
    } else {
      ASSIGN_OR_RETURN(stmt->target, ParseTarget());
    }
    if (SkipOperator("=")) {
      stmt->kind = StmtKind::kSet;
      ASSIGN_OR_RETURN(stmt->value, ParseTuple(TupleOf::kExpressions, false));
      return ExpectBlockEnd();
    }
    stmt->kind = StmtKind::kSetBlock;
    if (IsOperator("|")) {
      ASSIGN_OR_RETURN(stmt->value, ParseFilterChain(nullptr));
    }
    ASSIGN_OR_RETURN(stmt->body, ParseBodyUntil("endset"));
    return ExpectBlockEnd();
  }

  Status ParseSignature(Stmt* stmt) {
    RETURN_IF_ERROR(ExpectOperator("("));
    while (!IsOperator(")")) {
      if (!stmt->parameters.empty()) RETURN_IF_ERROR(ExpectOperator(","));
      if (IsOperator(")")) break;
      Parameter parameter;
      ASSIGN_OR_RETURN(parameter.name, ExpectName());
      if (SkipOperator("=")) {
        ASSIGN_OR_RETURN(parameter.default_value, ParseExpression());
      } else if (!stmt->parameters.empty() && stmt->parameters.back().default_value != nullptr) {
        return Fail("non-default argument follows default argument");
      }
      stmt->parameters.push_back(std::move(parameter));
    }
    return ExpectOperator(")");
  }

  // The body of a macro or call block. A call may pass extra arguments only if the body mentions
  // the name that collects them.
  Status ParseMacroBody(const char* end_tag, Stmt* stmt) {
    const size_t begin = Position();
    const int loop_depth = std::exchange(loop_depth_, 0);
    ASSIGN_OR_RETURN(stmt->body, ParseBodyUntil(end_tag));
    loop_depth_ = loop_depth;
    stmt->uses_varargs = NameOccurs("varargs", begin);
    stmt->uses_kwargs = NameOccurs("kwargs", begin);
    stmt->uses_caller = NameOccurs("caller", begin);
    return ExpectBlockEnd();
  }

  Status ParseMacro(Stmt* stmt) {
    stmt->kind = StmtKind::kMacro;
    ASSIGN_OR_RETURN(stmt->text, ExpectName());
    RETURN_IF_ERROR(ParseSignature(stmt));
    return ParseMacroBody("endmacro", stmt);
  }

  Status ParseCallBlock(Stmt* stmt) {
    stmt->kind = StmtKind::kCall;
    stmt->text = "caller";
    if (IsOperator("(")) RETURN_IF_ERROR(ParseSignature(stmt));
    ASSIGN_OR_RETURN(stmt->value, ParseExpression());
    if (stmt->value->kind != ExprKind::kCall) return Fail("expected call");
    return ParseMacroBody("endcall", stmt);
  }

  Status ParseFilterBlock(Stmt* stmt) {
    stmt->kind = StmtKind::kFilter;
    ASSIGN_OR_RETURN(stmt->value, ParseFilterChain(nullptr));
    ASSIGN_OR_RETURN(stmt->body, ParseBodyUntil("endfilter"));
    return ExpectBlockEnd();
  }

  Status ParseWith(Stmt* stmt) {
    stmt->kind = StmtKind::kWith;
    while (!Is(TokenKind::kBlockEnd)) {
      if (!stmt->assignments.empty()) RETURN_IF_ERROR(ExpectOperator(","));
      ASSIGN_OR_RETURN(Target target, ParseTargetName());
      RETURN_IF_ERROR(ExpectOperator("="));
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      stmt->assignments.emplace_back(std::move(target), std::move(value));
    }
    ASSIGN_OR_RETURN(stmt->body, ParseBodyUntil("endwith"));
    return ExpectBlockEnd();
  }

  Status ParseScope(const std::string& tag, Stmt* stmt) {
    stmt->kind = StmtKind::kScope;
    if (tag == "block") {
      RETURN_IF_ERROR(ExpectName().status());
      SkipName("scoped");
      SkipName("required");
    } else if (tag == "autoescape") {
      RETURN_IF_ERROR(ParseExpression().status());
    }
    const std::string end_tag = "end" + tag;
    ASSIGN_OR_RETURN(stmt->body, ParseBodyUntil(end_tag.c_str()));
    if (tag == "block") SkipName(Current().text);  // its name may be repeated
    return ExpectBlockEnd();
  }

  int loop_depth_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<const Template>> Parse(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace tandem::jinja
