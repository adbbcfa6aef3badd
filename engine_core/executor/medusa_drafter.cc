#include "engine_core/executor/medusa_drafter.h"

#include <algorithm>
#include <utility>

namespace tandem {

MedusaDrafter::MedusaDrafter(Backend* backend, DraftModel draft, KvFormat kv_format,
                             InputBatch* batch)
    : PassDrafter(backend, draft, /*shift=*/1, kv_format, batch),
      tables_(std::move(draft.tables)),
      heads_(std::move(draft.medusa)),
      state_rows_(static_cast<size_t>(batch->limits().max_num_seqs)) {
  last_state_rows_.reserve(state_rows_.size());
}

StatusOr<std::unique_ptr<MedusaDrafter>> MedusaDrafter::Create(Backend* backend, DraftModel draft,
                                                               KvFormat kv_format,
                                                               InputBatch* batch) {
  const int64_t hidden = draft.config.hidden_size;
  std::unique_ptr<MedusaDrafter> drafter(
      new MedusaDrafter(backend, std::move(draft), kv_format, batch));
  RETURN_IF_ERROR(drafter->Allocate());
  Device& device = backend->device();
  const ExecutorLimits& limits = batch->limits();
  ASSIGN_OR_RETURN(drafter->states_, device.Allocate(backend->activation_dtype(),
                                                     {limits.max_num_batched_tokens, hidden}));
  ASSIGN_OR_RETURN(drafter->logits_states_, SentNumbers::Create(&device, limits.max_num_seqs));
  return drafter;
}

std::span<const StateTap> MedusaDrafter::Taps(int64_t num_tokens, const Tensor& /*room*/) {
  num_step_tokens_ = num_tokens;
  return {};
}

void MedusaDrafter::TakeStates(Model* target) {
  target->NormStates(states_.view().Rows(0, num_step_tokens_));
}

// The last position whose logits made a token, and nothing before it.
void MedusaDrafter::TakeIn(std::span<const Wish> wishes) {
  state_rows_.clear();
  for (const Wish& wish : wishes) {
    const InputBatch::Row& row = batch_->row(wish.slot);
    const int32_t last = row.num_tokens - 1 - shift_;
    if (!row.in_use || wish.num_drafts == 0 || last < wish.begin ||
        last >= wish.begin + wish.count) {
      continue;
    }
    AddChunk(wish, last, 1);
    state_rows_.push_back(wish.first_row + last - wish.begin);
  }
}

void MedusaDrafter::Forward(const StepInputs::Views& /*inputs*/) {
  if (is_first_pass_) {
    head_idx_ = 0;
    return;
  }
  ++head_idx_;
  last_state_rows_ = state_rows_;
  state_rows_.clear();
  for (const int32_t row : parent_rows_) {
    state_rows_.push_back(last_state_rows_[static_cast<size_t>(row)]);
  }
}

void MedusaDrafter::Logits(const Tensor& logits, int64_t first, const Tensor& rows) {
  const std::span<int32_t> states = logits_states_.Begin(rows.rows());
  std::ranges::fill(states, 0);  // padding has tokens of no request
  for (size_t i = 0; i < states.size(); ++i) {
    const size_t number = static_cast<size_t>(first) + i;
    if (number >= layout_.logits_rows.size()) break;
    states[i] = state_rows_[static_cast<size_t>(layout_.logits_rows[number].token_row)];
  }
  logits_states_.Send(rows.rows());
  heads_->Logits(head_idx_, logits, states_.view(), logits_states_.device(rows.rows()));
}

}  // namespace tandem
