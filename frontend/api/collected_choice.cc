#include "frontend/api/collected_choice.h"

#include <iterator>

namespace tandem {

void CollectedChoice::Append(MessageDelta& delta) {
  content += delta.content;
  reasoning += delta.reasoning;
  for (const ToolCallDelta& call : delta.tool_calls) AppendToolCall(call);
  token_ids.insert(token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(logprobs));
  if (!delta.finish_reason) return;
  finish_reason = FinishReasonName(*delta.finish_reason);
  stop_reason = delta.stop_reason;
}

double CollectedChoice::LogprobOf(TokenId token) const {
  for (const PositionLogprobs& position : logprobs) {
    for (const ScoredToken& scored : position.top) {
      if (scored.token_id == token) return scored.logprob;
    }
  }
  return kLowestLogprob;
}

void CollectedChoice::AppendToolCall(const ToolCallDelta& delta) {
  const auto index = static_cast<size_t>(delta.index);
  if (index >= tool_calls.size()) tool_calls.resize(index + 1);
  ToolCallDelta& call = tool_calls[index];
  call.index = delta.index;
  call.id += delta.id;
  call.name += delta.name;
  call.arguments += delta.arguments;
}

}  // namespace tandem
