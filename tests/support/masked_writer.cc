#include "tests/support/masked_writer.h"

#include "common/token_mask.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int32_t kVocabSize = 3072;
const std::string kModel = std::string(TANDEM_SOURCE_DIR) + "/deploy/models/tandem-tiny";

}  // namespace

MaskedWriter::MaskedWriter(uint64_t seed)
    : tokenizer_(*Tokenizer::Load(kModel)),
      vocabulary_(*GrammarVocabulary::Load(kModel, kVocabSize)),
      dice_(seed) {}

std::optional<std::string> MaskedWriter::Write(const xgrammar::CompiledGrammar& grammar) {
  constexpr int kMaxTokens = 500;
  TokenMatcher matcher(grammar, &vocabulary_);
  std::vector<int32_t> mask((kVocabSize + 31) / 32);
  std::string text;
  for (int i = 0; i < kMaxTokens; ++i) {
    matcher.FillMask(/*allows_special_tokens=*/false, mask);
    const TokenId token = Draw(mask);
    REQUIRE(token >= 0);
    REQUIRE(matcher.Accept(token));
    if (token == *tokenizer_->eos_id() || token == 0) return text;
    text += tokenizer_->TokenBytes(token);
  }
  return std::nullopt;
}

// Tokens that close something are drawn more often, so that outputs end.
TokenId MaskedWriter::Draw(std::span<const int32_t> mask) {
  std::vector<TokenId> allowed, closing;
  for (TokenId id = 0; id < kVocabSize; ++id) {
    if (!IsAllowed(mask, id)) continue;
    allowed.push_back(id);
    const std::string_view bytes = tokenizer_->TokenBytes(id);
    const bool ends = id == *tokenizer_->eos_id() || bytes == "\"" || bytes == "}" ||
                      bytes == "]" || bytes == "," || bytes == ":";
    if (ends) closing.push_back(id);
  }
  if (allowed.empty()) return -1;
  const auto& pool = !closing.empty() && dice_.Chance(3) ? closing : allowed;
  return pool[static_cast<size_t>(dice_.Roll(0, static_cast<int32_t>(pool.size()) - 1))];
}

bool MaskedWriter::Allows(const xgrammar::CompiledGrammar& grammar, std::string_view text) {
  TokenMatcher matcher(grammar, &vocabulary_);
  std::vector<int32_t> mask((kVocabSize + 31) / 32);
  while (!text.empty()) {
    const TokenId token = DrawPrefixOf(text);
    REQUIRE(token >= 0);
    matcher.FillMask(/*allows_special_tokens=*/false, mask);
    if (!IsAllowed(mask, token) || !matcher.Accept(token)) return false;
    text.remove_prefix(tokenizer_->TokenBytes(token).size());
  }
  matcher.FillMask(/*allows_special_tokens=*/false, mask);
  return IsAllowed(mask, *tokenizer_->eos_id());
}

TokenId MaskedWriter::DrawPrefixOf(std::string_view text) {
  TokenId drawn = -1;
  int32_t count = 0;
  for (TokenId id = 0; id < kVocabSize; ++id) {
    const std::string_view bytes = tokenizer_->TokenBytes(id);
    if (bytes.empty() || !text.starts_with(bytes) || tokenizer_->IsSpecial(id)) continue;
    if (dice_.Chance(++count)) drawn = id;
  }
  return drawn;
}

}  // namespace tandem
