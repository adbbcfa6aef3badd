#pragma once

// Drafts by a smaller model with the target's vocabulary (method draft_model).
// What it has computed is counted by block, not by request: a request that enters with a cached
// prefix begins where nobody's tokens were taken in. Tokens may also be left for later: then it is
// behind. Owns: the model. All else is as of PassDrafter.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine_core/executor/pass_drafter.h"

namespace tandem {

class ModelDrafter final : public PassDrafter {
 public:
  // REQUIRES: the model was loaded over `backend` with the batch's limits.
  static StatusOr<std::unique_ptr<ModelDrafter>> Create(Backend* backend, DraftModel draft,
                                                        KvFormat kv_format, InputBatch* batch);

  Status AllocateKvCache(int32_t num_blocks) override;
  void AppendBlocks(const ScheduledRequest& request, std::span<const BlockId> block_ids) override;
  int32_t NumBehind(RequestSlot slot, int32_t num_emitted) const override;
  void SetModel(DraftModel draft) override { model_ = std::move(draft.model); }

 private:
  ModelDrafter(Backend* backend, DraftModel draft, KvFormat kv_format, InputBatch* batch);

  int32_t& NumTaken(RequestSlot slot) { return num_taken_[static_cast<size_t>(Index(slot))]; }
  std::vector<TokenId>& Written(RequestSlot slot) {
    return written_[static_cast<size_t>(Index(slot))];
  }
  void KeepAccepted(RequestSlot slot);
  void MarkTaken(RequestSlot slot, int32_t end);
  void TakeIn(std::span<const Wish> wishes) override;
  void TakeDrafts(std::span<const Wish> wishes) override;
  void Forward(const StepInputs::Views& inputs) override;
  void Logits(const Tensor& logits, int64_t /*first*/, const Tensor& rows) override {
    model_->Logits(logits, rows);
  }

  std::unique_ptr<Model> model_;
  std::vector<int32_t> num_taken_;             // of each slot: leading positions
  std::vector<std::vector<TokenId>> written_;  // of each slot: drafts whose keys follow those
  std::vector<int32_t> num_filled_;            // of each block: leading positions
};

}  // namespace tandem
