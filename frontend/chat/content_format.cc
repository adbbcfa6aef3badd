#include "frontend/chat/content_format.h"

#include <set>
#include <string>

namespace tandem {
namespace {

using jinja::Body;
using jinja::Expr;
using jinja::ExprKind;
using jinja::Stmt;
using jinja::StmtKind;

class Finder {
 public:
  // Runs until no new name for the content turns up.
  bool Run(const Body& body) {
    size_t num_known = 0;
    do {
      num_known = aliases_.size();
      WalkBody(body);
    } while (!found_ && aliases_.size() != num_known);
    return found_;
  }

 private:
  // m.content, m['content'], the name "content" (a macro's parameter), a name given to one of
  // these, or one of these through filters.
  bool IsContent(const Expr& expr) const {
    switch (expr.kind) {
      case ExprKind::kGetAttr:
        return expr.name == "content";
      case ExprKind::kGetItem:
        return expr.items[1] != nullptr && expr.items[1]->kind == ExprKind::kString &&
               expr.items[1]->name == "content";
      case ExprKind::kName:
        return expr.name == "content" || aliases_.count(expr.name) != 0;
      case ExprKind::kFilter:
        return !expr.items.empty() && IsContent(*expr.items[0]);
      default:
        return false;
    }
  }

  void WalkBody(const Body& body) {
    for (const auto& stmt : body) WalkStmt(*stmt);
  }

  void WalkStmt(const Stmt& stmt) {
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
      default:
        break;
    }
    for (const auto& branch : stmt.branches) WalkBody(branch.second);
    WalkBody(stmt.body);
    WalkBody(stmt.else_body);
  }

  std::set<std::string> aliases_;
  bool found_ = false;
};

}  // namespace

ContentFormat FindContentFormat(const jinja::Template& source) {
  return Finder().Run(source.body) ? ContentFormat::kParts : ContentFormat::kString;
}

}  // namespace tandem
