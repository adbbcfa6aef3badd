#pragma once

// How often each token occurred in one request, and the penalties that follow from it.
// Thread: one thread per row at a time. Ownership: a dense count per token of the vocabulary,
// allocated by Reset and kept for the row's next request. Apply touches only tokens that occurred.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"

namespace tandem {

class TokenCounts {
 public:
  // Starts a new request: counts for up to max_tokens tokens of [0, vocab_size), without further
  // allocation.
  void Reset(int64_t vocab_size, int64_t max_tokens);
  void AddPrompt(std::span<const TokenId> token_ids);
  void AddOutput(TokenId token_id);

  // For tokens of prompt or output: x > 0 ? x / repetition : x * repetition. Then for tokens of the
  // output: x -= frequency * count + presence.
  void Apply(float repetition, float frequency, float presence, std::span<float> logits) const;

 private:
  // Bit 0: in the prompt. The rest: occurrences in the output.
  std::vector<int32_t> counts_;
  std::vector<TokenId> seen_;  // tokens with counts_ != 0, each once

  void Add(TokenId token_id, int32_t change);
};

}  // namespace tandem
