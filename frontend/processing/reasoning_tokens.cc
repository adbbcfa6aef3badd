#include "frontend/processing/reasoning_tokens.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {
namespace {

std::vector<TokenId> TokensOf(std::string_view text, const Tokenizer& tokenizer) {
  if (text.empty()) return {};
  if (const auto token = tokenizer.TokenToId(text)) return {*token};
  auto tokens = tokenizer.Encode(text, /*add_special_tokens=*/false);
  return tokens.ok() ? std::move(tokens).value() : std::vector<TokenId>();
}

}  // namespace

ReasoningTokens FindReasoningTokens(const ParserConfig& parsers, const Tokenizer& tokenizer) {
  const auto or_else = [](std::string_view text, std::string_view otherwise) {
    return text.empty() ? otherwise : text;
  };
  std::string_view begin, end, tool_call;
  if (parsers.reasoning != nullptr) {
    begin = parsers.reasoning->begin;
    end = parsers.reasoning->end;
    tool_call = parsers.reasoning->tool_marker;
  }
  const std::string_view forced_end = or_else(parsers.reasoning_end, end);
  ReasoningTokens tokens;
  wire::ReasoningMarks& marks = tokens.marks;
  marks.begin = TokensOf(or_else(parsers.reasoning_begin, begin), tokenizer);
  marks.end = TokensOf(or_else(end, forced_end), tokenizer);
  marks.tool_call = TokensOf(tool_call, tokenizer);
  marks.forced_end = TokensOf(forced_end, tokenizer);
  tokens.ends_with_one_token = marks.end.size() == 1;
  return tokens;
}

bool MarkersAreSpecial(const ParserConfig& parsers, const Tokenizer& tokenizer) {
  if (parsers.reasoning == nullptr) return false;
  for (const std::string_view marker : {parsers.reasoning->begin, parsers.reasoning->end}) {
    if (marker.empty()) continue;
    const std::optional<TokenId> token = tokenizer.TokenToId(marker);
    if (token && tokenizer.IsSpecial(*token)) return true;
  }
  return false;
}

}  // namespace tandem
