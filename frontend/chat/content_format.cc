#include "frontend/chat/content_format.h"

#include <set>
#include <string>

namespace tandem {
namespace {

using jinja::Body;
using jinja::Expr;
using jinja::ExprKind;
using jinja::ExprPtr;
using jinja::Stmt;
using jinja::StmtKind;

class Finder {
 public:
  // Runs until no new name for the content turns up: a macro may be called after it is defined.
  bool Run(const Body& body) {
    size_t num_known = 0;
    do {
      num_known = aliases_.size() + content_args_.size();
      WalkBody(body);
    } while (!found_ && aliases_.size() + content_args_.size() != num_known);
    return found_;
  }

 private:
  // m.content, m['content'], a name given to it, or one of these through filters.
  bool IsContent(const Expr& expr) const {
    switch (expr.kind) {
      case ExprKind::kGetAttr:
        return expr.name == "content";
      case ExprKind::kGetItem:
        return expr.items[1] != nullptr && expr.items[1]->kind == ExprKind::kString &&
               expr.items[1]->name == "content";
      case ExprKind::kName:
        return aliases_.count(expr.name) != 0;
      case ExprKind::kFilter:
        return !expr.items.empty() && IsContent(*expr.items[0]);
      default:
        return false;
    }
  }

  void WalkExpr(const ExprPtr& expr) {
    if (expr == nullptr) return;
    if (expr->kind == ExprKind::kCall && expr->items[0]->kind == ExprKind::kName) {
      const auto& positional = expr->args.positional;
      for (size_t i = 0; i < positional.size(); ++i) {
        if (IsContent(*positional[i])) {
          content_args_.insert(expr->items[0]->name + "/" + std::to_string(i));
        }
      }
    }
    for (const ExprPtr& item : expr->items) WalkExpr(item);
    for (const ExprPtr& item : expr->args.positional) WalkExpr(item);
    for (const auto& item : expr->args.named) WalkExpr(item.second);
  }

  void WalkBody(const Body& body) {
    for (const auto& stmt : body) WalkStmt(*stmt);
  }

  void WalkStmt(const Stmt& stmt) {
    WalkExpr(stmt.value);
    switch (stmt.kind) {
      case StmtKind::kFor:
        if (IsContent(*stmt.value)) found_ = true;
        break;
      case StmtKind::kSet:
        if (stmt.target.targets.empty() && stmt.target.attribute.empty() &&
            IsContent(*stmt.value)) {
          aliases_.insert(stmt.target.name);
        }
        break;
      case StmtKind::kMacro:
        for (size_t i = 0; i < stmt.parameters.size(); ++i) {
          if (content_args_.count(stmt.text + "/" + std::to_string(i)) != 0) {
            aliases_.insert(stmt.parameters[i].name);
          }
        }
        break;
      default:
        break;
    }
    for (const auto& [condition, body] : stmt.branches) {
      WalkExpr(condition);
      WalkBody(body);
    }
    WalkBody(stmt.body);
    WalkBody(stmt.else_body);
  }

  std::set<std::string> aliases_;
  std::set<std::string> content_args_;  // "macro/index of the argument"
  bool found_ = false;
};

}  // namespace

ContentFormat FindContentFormat(const jinja::Template& source) {
  return Finder().Run(source.body) ? ContentFormat::kParts : ContentFormat::kString;
}

}  // namespace tandem
