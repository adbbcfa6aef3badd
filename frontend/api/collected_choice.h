#pragma once

// What the deltas of one choice add up to, for the endpoints' answers in one body.
// Thread: the shard's. A value.

#include <string>
#include <vector>

#include "frontend/api/generation.h"

namespace tandem {

struct CollectedChoice {
  std::string text;
  std::vector<TokenId> token_ids;  // only where the answer shows them
  std::vector<PositionLogprobs> logprobs;
  std::string finish_reason;
  wire::StopReason stop_reason;

  void Append(const Tokenizer& tokenizer, const ChoiceShape& shape, const OutputDelta& delta);
  // Whether the delta was the last; then it says why.
  bool TakeEnd(const OutputDelta& delta);
};

}  // namespace tandem
