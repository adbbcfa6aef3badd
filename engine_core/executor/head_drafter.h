#pragma once

// Drafts by a head over the target's hidden states (methods eagle, eagle3 and mtp). After each step
// it takes in the states of the tokens that the step has computed and kept, since the next step
// overwrites them, and guesses on from its own states. What was written for guesses is written
// again with true states.
// A position whose states were not taken in, of a cached prefix or of a step in which nobody
// drafts, keeps the keys and values that its place in the cache had: guesses may be worse then.
// Owns: the head, the states of a step. All else is as of PassDrafter.

#include <memory>
#include <utility>
#include <vector>

#include "engine_core/executor/pass_drafter.h"
#include "engine_core/executor/sent_numbers.h"

namespace tandem {

class HeadDrafter final : public PassDrafter {
 public:
  // gets_room: each step's Taps have room. REQUIRES: the head was loaded over `backend` with the
  // batch's limits.
  static StatusOr<std::unique_ptr<HeadDrafter>> Create(Backend* backend, DraftModel draft,
                                                       KvFormat kv_format, InputBatch* batch,
                                                       bool gets_room);

  std::span<const StateTap> Taps(int64_t num_tokens, const Tensor& room) override;
  void TakeStates(Model* target) override;
  int32_t NumBehind(RequestSlot /*slot*/, int32_t num_emitted) const override {
    return num_emitted;
  }
  bool reads_states() const override { return true; }
  void SetModel(DraftModel draft) override {
    head_ = std::move(draft.head);
    tables_ = std::move(draft.tables);
  }

 private:
  HeadDrafter(Backend* backend, DraftModel draft, KvFormat kv_format, InputBatch* batch);
  void TakeIn(std::span<const Wish> wishes) override;
  void SendRows(int64_t num_tokens) override;
  void Forward(const StepInputs::Views& inputs) override;
  void Logits(const Tensor& logits, int64_t /*first*/, const Tensor& rows) override {
    head_->Logits(logits, rows);
  }

  std::unique_ptr<Model> tables_;  // DraftModel::tables
  std::unique_ptr<DraftHead> head_;
  int64_t hidden_;
  int64_t num_step_tokens_ = 0;
  OwnedTensor own_states_;           // [T, H of each tap] act
  Tensor states_;                    // of the target's newest step, there or in the room given
  std::vector<int32_t> first_rows_;  // of the first pass, HeadStep::state_rows
  SentNumbers state_rows_;           // of this pass
  std::vector<StateTap> taps_;
};

}  // namespace tandem
