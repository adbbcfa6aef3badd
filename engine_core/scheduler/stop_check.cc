#include "engine_core/scheduler/stop_check.h"

#include <algorithm>

namespace tandem {

std::optional<Stop> CheckStop(const wire::SamplingParams& params,
                              std::span<const TokenId> token_ids, int32_t num_prompt_tokens,
                              int32_t max_model_len) {
  const TokenId last = token_ids.back();
  const auto outputs = token_ids.subspan(static_cast<size_t>(num_prompt_tokens));
  const auto num_outputs = static_cast<int32_t>(outputs.size());
  if (params.eos_token_id == last && !params.ignore_eos) {
    return Stop{wire::RequestStatus::kFinishedStopped, {}};
  }
  const auto& stop_ids = params.stop_token_ids;
  if (std::find(stop_ids.begin(), stop_ids.end(), last) != stop_ids.end()) {
    return Stop{wire::RequestStatus::kFinishedStopped, int64_t{last}};
  }
  if (static_cast<int32_t>(token_ids.size()) >= max_model_len || num_outputs >= params.max_tokens) {
    return Stop{wire::RequestStatus::kFinishedLengthCapped, {}};
  }
  if (num_outputs >= params.min_tokens && params.repetition_detection &&
      EndsInRepetition(outputs, *params.repetition_detection)) {
    return Stop{wire::RequestStatus::kFinishedRepetition, "repetition_detected"};
  }
  return std::nullopt;
}

bool EndsInRepetition(std::span<const TokenId> outputs, const wire::RepetitionDetection& rule) {
  if (rule.max_pattern_size <= 0 || rule.min_count < 2) return false;
  const auto max_size = static_cast<size_t>(rule.max_pattern_size);
  const auto count = static_cast<size_t>(rule.min_count);
  for (auto size = static_cast<size_t>(std::max(rule.min_pattern_size, 1)); size <= max_size;
       ++size) {
    if (size * count > outputs.size()) return false;
    // A sequence repeats with this period when it equals itself shifted by it.
    const auto tail = outputs.last(size * count);
    if (std::equal(tail.begin() + static_cast<ptrdiff_t>(size), tail.end(), tail.begin()))
      return true;
  }
  return false;
}

}  // namespace tandem
