#pragma once

// Makes text of a wanted number of tokens. With a tokenizer it draws tokens that are one word each
// and whose text tokenizes to the same token, so that the length is nearly always right at the
// first try; without one it draws plain words. Thread: one. Borrows the tokenizer.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/ids.h"
#include "frontend/text/tokenizer.h"

namespace tandem {

class PromptWords {
 public:
  // `tokenizer` may be null.
  PromptWords(const Tokenizer* tokenizer, uint64_t seed);

  // Draws ids instead of text, so that pieces can be shared and joined.
  std::vector<TokenId> Draw(int64_t count);

  // Text that has as many tokens as `ids`, special tokens of the tokenizer not counted; it begins
  // with the text of `ids`. A few tokens more or less where the tokenizer allows nothing better.
  std::string Text(std::vector<TokenId> ids);

  // Tokens that the server will count for the text, special tokens included.
  int64_t CountTokens(const std::string& text) const;
  int64_t num_special_tokens() const { return num_special_tokens_; }

  uint64_t Below(uint64_t limit) { return random_() % limit; }

 private:
  void PickCandidates();

  const Tokenizer* tokenizer_;
  std::mt19937_64 random_;
  std::vector<TokenId> candidates_;
  int64_t num_special_tokens_ = 0;
};

}  // namespace tandem
