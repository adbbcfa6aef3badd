// StepSampler's rows after drafts, on a device.

#include <algorithm>

#include "engine_core/executor/step_sampler.h"

namespace tandem {

void StepSampler::SampleInTurns(const StepLayout& layout, int64_t first, int64_t end,
                                StepSamples* samples) {
  turn_.clear();
  for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(end); ++i) {
    if (layout.logits_rows[i].on_device && !layout.FollowsDraft(i)) turn_.push_back(i);
  }
  if (!turn_.empty()) TakeTurn(layout, end, samples);
  const int64_t count = end - first;
  while (FillTurn(layout, first, end, *samples)) {
    backend_->device().StartCopyIn(turn_rows_.view().Rows(0, count),
                                   turn_staging_.view().Rows(0, count));
    SampleOnDevice(logits(count), turn_rows_.view().Rows(0, count), first);
    TakeTurn(layout, end, samples);
  }
}

// The next row of each request whose drafts were right so far, among the logits made last. Whether
// there is one.
bool StepSampler::FillTurn(const StepLayout& layout, int64_t first, int64_t end,
                           const StepSamples& samples) {
  turn_.clear();
  auto* rows = reinterpret_cast<SamplingRow*>(turn_staging_.view().Data<int32_t>());
  std::fill_n(rows, end - first, SamplingRow{});
  for (size_t i = 0; i < samples.requests.size(); ++i) {
    const StepSamples::Request& sampled = samples.requests[i];
    if (sampled.num_tokens == 0 || sampled.is_settled) continue;
    const size_t row_idx = sampled.first_row + static_cast<size_t>(sampled.num_tokens);
    const auto place = static_cast<int64_t>(row_idx) - first;
    if (!batch_->row(layout.requests[i].slot).samples_on_device || place < 0 ||
        place >= end - first) {
      continue;
    }
    rows[place] = SamplingRowOf(layout, row_idx);
    turn_.push_back(row_idx);
  }
  return !turn_.empty();
}

// Waits for the rows of a turn; the step's rows up to `end` have been sampled so far.
void StepSampler::TakeTurn(const StepLayout& layout, int64_t end, StepSamples* samples) {
  device_->StartFetch(end, layout.max_device_logprobs);
  device_->TakeFetched();
  for (const size_t row_idx : turn_) TakeRow(layout, row_idx, samples);
}

}  // namespace tandem
