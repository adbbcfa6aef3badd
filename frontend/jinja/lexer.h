#pragma once

// Cuts Jinja source into tokens: template text as kText, and what {{ }} and {% %} contain.
// White space control (-, +, trim_blocks, lstrip_blocks), comments and raw blocks are done here, so
// the parser sees only text that is printed.
// Pure; any thread. Tokens own their text. Lines count from 1.
// Fails with InvalidArgument "line N: ..." on an unclosed tag, string or bracket.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem::jinja {

enum class TokenKind {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kInteger,  // text: digits of any base with its prefix, underscores removed
  kFloat,
  kString,  // text: the value, escapes resolved
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// The name of a token in error messages: "end of print statement", "name", ",".
std::string Describe(const Token& token);

}  // namespace tandem::jinja
