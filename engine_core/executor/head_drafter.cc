#include "engine_core/executor/head_drafter.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tandem {

HeadDrafter::HeadDrafter(Backend* backend, DraftModel draft, KvFormat kv_format, InputBatch* batch)
    : PassDrafter(backend, draft, /*shift=*/1, kv_format, batch),
      head_(std::move(draft.head)),
      hidden_(draft.config.hidden_size) {}

StatusOr<std::unique_ptr<HeadDrafter>> HeadDrafter::Create(Backend* backend, DraftModel draft,
                                                           KvFormat kv_format, InputBatch* batch) {
  std::unique_ptr<HeadDrafter> drafter(
      new HeadDrafter(backend, std::move(draft), kv_format, batch));
  RETURN_IF_ERROR(drafter->Allocate());
  const int64_t tokens = batch->limits().max_num_batched_tokens;
  const auto num_taps = static_cast<int64_t>(drafter->head_->state_layers().size());
  const int64_t width = drafter->hidden_ * std::max<int64_t>(1, num_taps);
  ASSIGN_OR_RETURN(drafter->states_,
                   backend->device().Allocate(backend->activation_dtype(), {tokens, width}));
  ASSIGN_OR_RETURN(drafter->state_rows_, backend->device().Allocate(DType::kI32, {tokens}));
  drafter->taps_.resize(static_cast<size_t>(num_taps));
  return drafter;
}

// A head without any reads the last states, normed.
std::span<const StateTap> HeadDrafter::Taps(int64_t num_tokens) {
  num_step_tokens_ = num_tokens;
  const Tensor states = states_.view().Rows(0, num_tokens);
  for (size_t i = 0; i < taps_.size(); ++i) {
    taps_[i] = {.num_layers = head_->state_layers()[i],
                .out = states.Columns(static_cast<int64_t>(i) * hidden_, hidden_)};
  }
  return taps_;
}

void HeadDrafter::TakeStates(Model* target) {
  if (taps_.empty()) target->NormStates(states_.view().Rows(0, num_step_tokens_));
}

void HeadDrafter::TakeIn(std::span<const Wish> wishes) {
  auto* state_rows = state_rows_.view().Data<int32_t>();
  for (const Wish& wish : wishes) {
    const InputBatch::Row& row = batch_->row(wish.slot);
    if (!row.in_use || row.embeddings != nullptr) continue;
    const int32_t end =
        std::min({wish.begin + wish.count, row.num_tokens - shift_, NumPositions(wish.slot)});
    if (end <= wish.begin) continue;
    AddChunk(wish, wish.begin, end - wish.begin);
    std::iota(state_rows, state_rows + end - wish.begin, wish.first_row);
    state_rows += end - wish.begin;
  }
}

void HeadDrafter::Forward(const StepInputs::Views& inputs) {
  const int64_t num_tokens = inputs.token_ids.rows();
  const Tensor rows = state_rows_.view().Rows(0, num_tokens);
  if (!is_first_pass_) std::ranges::copy(parent_rows_, rows.Data<int32_t>());
  head_->Forward({.token_ids = inputs.token_ids,
                  .states = is_first_pass_ ? states_.view() : Tensor(),
                  .state_rows = rows,
                  .plan = plan_.get(),
                  .kv_cache = kv_cache_.get()});
}

}  // namespace tandem
