#include "frontend/api/collected_choice.h"

#include <iterator>

namespace tandem {

void CollectedChoice::Append(MessageDelta& delta) {
  content += delta.content;
  token_ids.insert(token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(logprobs));
  if (!delta.finish_reason) return;
  finish_reason = FinishReasonName(*delta.finish_reason);
  stop_reason = delta.stop_reason;
}

}  // namespace tandem
