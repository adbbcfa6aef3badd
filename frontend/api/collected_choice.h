#pragma once

// The sum of one choice's deltas, for responses in one body. A value. Thread: the shard's.

#include <string>
#include <string_view>
#include <vector>

#include "frontend/processing/message_delta.h"

namespace tandem {

struct CollectedChoice {
  std::string content;
  std::string reasoning;
  std::vector<ToolCallDelta> tool_calls;  // whole calls, by index
  std::vector<TokenId> token_ids;
  std::vector<PositionLogprobs> logprobs;
  std::string_view finish_reason;
  wire::StopReason stop_reason;

  // Moves the delta's logprobs out of it.
  void Append(MessageDelta& delta);
  // The token's logprob where it was scored first; kLowestLogprob: nowhere.
  double LogprobOf(TokenId token) const;

 private:
  void AppendToolCall(const ToolCallDelta& delta);
};

}  // namespace tandem
