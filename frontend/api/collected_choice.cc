#include "frontend/api/collected_choice.h"

namespace tandem {

void CollectedChoice::Append(const Tokenizer& tokenizer, const ChoiceShape& shape,
                             const OutputDelta& delta) {
  text += delta.text;
  if (shape.return_token_ids) {
    token_ids.insert(token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  }
  for (const wire::LogprobsRows& rows : delta.logprobs) {
    AppendPositionLogprobs(tokenizer, shape.logprobs_style, rows, &logprobs);
  }
}

bool CollectedChoice::TakeEnd(const OutputDelta& delta) {
  if (!delta.finish_reason) return false;
  finish_reason = wire::FinishReasonName(*delta.finish_reason);
  stop_reason = delta.stop_reason;
  return true;
}

}  // namespace tandem
