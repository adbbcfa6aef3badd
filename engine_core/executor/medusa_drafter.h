#pragma once

// Drafts by Medusa's heads (method medusa): the j-th pass asks the j-th head, each from the state
// that made the request's newest token. They have no keys and values, and what came before does not
// matter. Owns: the heads, the states of a step. All else is as of PassDrafter.

#include <memory>
#include <utility>

#include "engine_core/executor/pass_drafter.h"
#include "engine_core/executor/sent_numbers.h"

namespace tandem {

class MedusaDrafter final : public PassDrafter {
 public:
  // REQUIRES: the heads were loaded over `backend` with the batch's limits.
  static StatusOr<std::unique_ptr<MedusaDrafter>> Create(Backend* backend, DraftModel draft,
                                                         KvFormat kv_format, InputBatch* batch);

  Status AllocateKvCache(int32_t /*num_blocks*/) override { return OkStatus(); }
  std::span<const StateTap> Taps(int64_t num_tokens, const Tensor& room) override;
  void TakeStates(Model* target) override;
  int32_t NumBehind(RequestSlot /*slot*/, int32_t /*num_emitted*/) const override { return 1; }
  bool reads_states() const override { return true; }
  void SetModel(DraftModel draft) override {
    heads_ = std::move(draft.medusa);
    tables_ = std::move(draft.tables);
  }

 private:
  MedusaDrafter(Backend* backend, DraftModel draft, KvFormat kv_format, InputBatch* batch);
  void TakeIn(std::span<const Wish> wishes) override;
  bool repeats_ops() const override { return false; }  // each pass has another head
  void Forward(const StepInputs::Views& inputs) override;
  void Logits(const Tensor& logits, int64_t first, const Tensor& rows) override;

  std::unique_ptr<Model> tables_;  // DraftModel::tables
  std::unique_ptr<MedusaHeads> heads_;
  size_t head_idx_ = 0;  // of this pass
  int64_t num_step_tokens_ = 0;
  OwnedTensor states_;                                 // [T, H] act, of the target's newest step
  SentNumbers logits_states_;                          // of the rows of logits, those of states_
  std::vector<int32_t> state_rows_, last_state_rows_;  // of each token of the pass
};

}  // namespace tandem
