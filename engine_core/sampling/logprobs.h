#pragma once

// Logprobs of one row of logits: a chosen token's, its rank, and the most probable ones.
// Thread: pure functions over the caller's memory. Units: natural logarithm.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"

namespace tandem {

// Where one row of logprobs goes: the chosen token first, then the top ones, most probable first
// and the lower id first among equals. Both spans hold 1 + number of top tokens.
struct LogprobsRow {
  std::span<TokenId> token_ids;
  std::span<float> logprobs;
  int64_t* rank = nullptr;  // number of tokens at least as probable as the chosen one, from 1
};

// `heap` is scratch that grows to the number of top tokens.
void FillLogprobs(std::span<const float> logits, TokenId chosen, const LogprobsRow& out,
                  std::vector<TokenId>* heap);

}  // namespace tandem
