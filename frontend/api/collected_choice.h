#pragma once

// What the deltas of one choice add up to, for responses in one body.
// Thread: the shard's. A value.

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

  // Takes the delta's logprobs.
  void Append(MessageDelta& delta);

 private:
  void AppendToolCall(const ToolCallDelta& delta);
};

}  // namespace tandem
