#pragma once

// The logprobs that are reported of one row of logits: a chosen token's with its rank, and those of
// other tokens.
// Thread: pure functions over the caller's memory. Units: natural logarithm when normalized, else
// the logits as they are. A row may hold -infinity, not NaN.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"

namespace tandem {

// Where one row of logprobs goes: the chosen token first, then others. Both spans hold 1 + the
// number of others.
struct LogprobsRow {
  std::span<TokenId> token_ids;
  std::span<float> logprobs;
  int64_t* rank = nullptr;  // number of tokens at least as probable as the chosen one, from 1
};

// The others are the top tokens, most probable first and the lower id first among equals.
// `heap` is scratch that grows to their number.
void FillTopLogprobs(std::span<const float> logits, bool normalized, TokenId chosen,
                     const LogprobsRow& out, std::vector<TokenId>* heap);

// The others are `token_ids`, in this order.
void FillLogprobsOf(std::span<const float> logits, bool normalized, TokenId chosen,
                    std::span<const TokenId> token_ids, const LogprobsRow& out);

// Of `token_ids` alone: -infinity for what is no token (negative).
void FillScoresOf(std::span<const float> logits, bool normalized,
                  std::span<const TokenId> token_ids, std::span<float> out);

}  // namespace tandem
