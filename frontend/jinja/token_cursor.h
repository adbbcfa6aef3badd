#pragma once

// Where a parser stands in its tokens: looks at the current one, moves on, reports what is wrong
// with it, and counts the depth of the parser's own recursion. Thread: one parse.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "frontend/jinja/lexer.h"
#include "frontend/jinja/parser.h"

namespace tandem::jinja {

class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  const Token& Current() const { return tokens_[pos_]; }
  const Token& Ahead() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  void Skip() {
    if (pos_ + 1 < tokens_.size()) ++pos_;
  }
  bool Is(TokenKind kind) const { return Current().kind == kind; }
  bool IsOperator(std::string_view text) const {
    return Is(TokenKind::kOperator) && Current().text == text;
  }
  bool IsName(std::string_view text) const {
    return Is(TokenKind::kName) && Current().text == text;
  }
  bool SkipOperator(std::string_view text) {
    const bool found = IsOperator(text);
    if (found) Skip();
    return found;
  }
  bool SkipName(std::string_view text) {
    const bool found = IsName(text);
    if (found) Skip();
    return found;
  }
  size_t Position() const { return pos_; }
  bool NameOccurs(std::string_view name, size_t since) const {
    return std::any_of(
        tokens_.begin() + static_cast<std::ptrdiff_t>(since),
        tokens_.begin() + static_cast<std::ptrdiff_t>(pos_),
        [&](const Token& token) { return token.kind == TokenKind::kName && token.text == name; });
  }
  Status Fail(const std::string& what) const {
    return InvalidArgumentError("line " + std::to_string(Current().line) + ": " + what);
  }
  Status Unexpected(const std::string& expected) const {
    return Fail("expected token '" + expected + "', got '" + Describe(Current()) + "'");
  }
  Status ExpectOperator(std::string_view text) {
    return SkipOperator(text) ? OkStatus() : Unexpected(std::string(text));
  }
  StatusOr<std::string> ExpectName() {
    if (!Is(TokenKind::kName)) return Unexpected("name");
    std::string name = Current().text;
    Skip();
    return name;
  }
  Status ExpectBlockEnd() {
    if (!Is(TokenKind::kBlockEnd)) return Unexpected("end of statement block");
    Skip();
    return OkStatus();
  }

  // Counts the recursion of the parser itself while it lives.
  struct Nesting {
    explicit Nesting(TokenCursor* owner) : cursor(owner) { ++cursor->nesting_; }
    ~Nesting() { --cursor->nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    bool TooDeep() const { return cursor->nesting_ > kMaxTreeDepth; }
    TokenCursor* cursor;
  };
  Status TooDeep() const { return Fail("nested too deeply"); }

 private:
  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int nesting_ = 0;
};

}  // namespace tandem::jinja
