#pragma once

// Makes text of a wanted number of tokens. With a tokenizer it draws tokens that stand for a word
// each and come back as themselves when their text is tokenized, so that lengths are met almost
// always at once; without one it draws plain words. Thread: one. Borrows the tokenizer.

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

  // Draws; not text yet, so that pieces can be shared and joined.
  std::vector<TokenId> Draw(int64_t count);

  // Text that has as many tokens as `ids`, special tokens of the tokenizer not counted; it begins
  // with the text of `ids`. Within a few tokens where the tokenizer cannot do better.
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
