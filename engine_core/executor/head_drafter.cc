#include "engine_core/executor/head_drafter.h"

#include <algorithm>
#include <utility>

namespace tandem {

HeadDrafter::HeadDrafter(Backend* backend, DraftModel draft, KvFormat kv_format, InputBatch* batch)
    : PassDrafter(backend, draft, /*shift=*/1, kv_format, batch),
      tables_(std::move(draft.tables)),
      head_(std::move(draft.head)),
      hidden_(draft.config.hidden_size) {}

StatusOr<std::unique_ptr<HeadDrafter>> HeadDrafter::Create(Backend* backend, DraftModel draft,
                                                           KvFormat kv_format, InputBatch* batch,
                                                           bool gets_room) {
  std::unique_ptr<HeadDrafter> drafter(
      new HeadDrafter(backend, std::move(draft), kv_format, batch));
  RETURN_IF_ERROR(drafter->Allocate());
  const int64_t tokens = batch->limits().max_num_batched_tokens;
  const auto num_taps = static_cast<int64_t>(drafter->head_->state_layers().size());
  const int64_t width = drafter->hidden_ * std::max<int64_t>(1, num_taps);
  // Passes of padding take the first row alone.
  const int64_t own_rows = gets_room && num_taps > 0 ? 1 : tokens;
  ASSIGN_OR_RETURN(drafter->own_states_,
                   backend->device().Allocate(backend->activation_dtype(), {own_rows, width}));
  drafter->states_ = drafter->own_states_;
  ASSIGN_OR_RETURN(drafter->state_rows_, SentNumbers::Create(&backend->device(), tokens));
  drafter->first_rows_.reserve(static_cast<size_t>(tokens));
  drafter->taps_.reserve(static_cast<size_t>(num_taps));
  return drafter;
}

// A head without any reads the last states, normed.
std::span<const StateTap> HeadDrafter::Taps(int64_t num_tokens, const Tensor& room) {
  num_step_tokens_ = num_tokens;
  if (head_->state_layers().empty()) return {};
  states_ = room.empty() ? own_states_.view() : room;
  SetTaps(head_->state_layers(), states_.Rows(0, num_tokens), &taps_);
  return taps_;
}

void HeadDrafter::TakeStates(Model* target) {
  if (taps_.empty()) target->NormStates(states_.Rows(0, num_step_tokens_));
}

void HeadDrafter::TakeIn(std::span<const Wish> wishes) {
  first_rows_.clear();
  for (const Wish& wish : wishes) {
    const InputBatch::Row& row = batch_->row(wish.slot);
    if (!row.in_use || row.embeddings != nullptr) continue;
    const int32_t end =
        std::min({wish.begin + wish.count, row.num_tokens - shift_, NumPositions(wish.slot)});
    if (end <= wish.begin) continue;
    AddChunk(wish, wish.begin, end - wish.begin);
    for (int32_t p = wish.begin; p < end; ++p) {
      first_rows_.push_back(wish.first_row + p - wish.begin);
    }
  }
}

void HeadDrafter::SendRows(int64_t num_tokens) {
  const std::vector<int32_t>& rows = is_first_pass_ ? first_rows_ : parent_rows_;
  const std::span<int32_t> sent = state_rows_.Begin(num_tokens);
  // Padding takes any states.
  std::fill(std::ranges::copy(rows, sent.begin()).out, sent.end(), 0);
  state_rows_.Send(num_tokens);
}

void HeadDrafter::Forward(const StepInputs::Views& inputs) {
  head_->Forward({.token_ids = inputs.token_ids,
                  .states = is_first_pass_ ? states_ : Tensor(),
                  .state_rows = state_rows_.device(inputs.token_ids.rows()),
                  .plan = plan_.get(),
                  .kv_cache = kv_cache_.get()});
}

}  // namespace tandem
