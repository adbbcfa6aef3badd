#pragma once

// Drafts by a smaller model with the target's vocabulary (method draft_model). It keeps keys and
// values in a cache of its own, which has the target's blocks: a position of a request lies in the
// same block and place of both. So block tables, prefix hits and preemption are the target's alone.
// What it has computed is counted by block, not by request: a request that enters with a cached
// prefix begins where nobody's tokens were taken in.
// After a step, Propose takes in the tokens that are new, in one pass over all requests, and
// guesses token by token: the likeliest one, or what the request's own sampler draws from the
// drafter's logits with the draw of that position, which the target's token will have too. Tokens
// may also be left for later: then it is behind. Nothing but speed depends on what it computes.
// Thread: engine loop. Owns: the model, its cache, the buffers of a pass. Borrows backend and
// batch, which outlive it. Steady decode allocates nothing.
// Failure: memory, in Create and AllocateKvCache.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "engine_core/executor/input_batch.h"
#include "engine_core/executor/step_inputs.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/models/model.h"
#include "engine_core/sampling/scratch_pool.h"
#include "engine_core/speculation/speculative_config.h"
#include "engine_core/speculation/step_cost.h"
#include "engine_core/weights/model_config.h"
#include "kernels/backend.h"

namespace tandem {

// A loaded drafter. No model: the drafter needs none.
struct DraftModel {
  std::unique_ptr<Model> model;
  ModelConfig config;
  int32_t max_positions = 0;  // of a request; longer ones get no drafts
  bool draws = false;         // SpeculativeConfig::draws_drafts
};

// INVALID_ARGUMENT: the drafter cannot draft for the target, or not for max_model_len tokens.
Status CheckDraftModel(const ModelConfig& target, const ModelConfig& draft,
                       const SpeculativeConfig& speculation);
int32_t DraftPositions(const ModelConfig& draft, const SpeculativeConfig& speculation,
                       const ExecutorLimits& limits);

class ModelDrafter {
 public:
  // REQUIRES: memory is the host's; the model was loaded over `backend` with the batch's limits.
  static StatusOr<std::unique_ptr<ModelDrafter>> Create(Backend* backend, DraftModel draft,
                                                        KvFormat kv_format, InputBatch* batch);
  Status AllocateKvCache(int32_t num_blocks);

  // ---- before a step ----
  // What the step has appended to the request's block table.
  void AppendBlocks(const ScheduledRequest& request, std::span<const BlockId> block_ids);

  // ---- after it was sampled ----
  // The most drafts that there is room for after the request's tokens.
  int32_t RoomFor(RequestSlot slot) const;
  // Tokens of the request that were not taken in.
  int32_t NumBehind(RequestSlot slot) const;
  struct Wish {
    RequestSlot slot{};
    int32_t num_tokens = 0;  // of the request, to be taken in
    int32_t num_drafts = 0;  // at most RoomFor; 0: no more than that. Else num_tokens is all
    std::vector<TokenId>* drafts = nullptr;  // empty
  };
  // Takes in at most a step's tokens: a request that stays behind gets no drafts.
  void Propose(std::span<const Wish> wishes);

  // Times passes of some sizes.
  std::vector<StepCost::Point> Measure();

 private:
  ModelDrafter(Backend* backend, DraftModel draft, KvFormat kv_format, InputBatch* batch);
  Status Allocate();

  int32_t& NumTaken(RequestSlot slot) { return num_taken_[static_cast<size_t>(Index(slot))]; }
  std::vector<TokenId>& Written(RequestSlot slot) {
    return written_[static_cast<size_t>(Index(slot))];
  }
  void KeepAccepted(RequestSlot slot);
  void MarkTaken(RequestSlot slot, int32_t end);
  void TakeIn(std::span<const Wish> wishes);
  bool DraftNext();
  // Runs what layout_ has; guesses_ has a token of each of its rows of logits.
  void RunPass();
  TokenId Guess(size_t row_idx, std::span<float> logits, SamplerScratch* scratch);

  Backend* backend_;
  InputBatch* batch_;
  std::unique_ptr<Model> model_;
  KvCacheSpec kv_spec_;
  AttentionShape attention_shape_;
  int32_t max_positions_;
  std::unique_ptr<KvCache> kv_cache_;
  std::unique_ptr<AttentionPlan> plan_;
  StepInputs inputs_;
  StepLayout layout_;
  OwnedTensor logits_;                         // [max_logits_rows, V] f32
  std::unique_ptr<ScratchPool> scratch_;       // null: drafts are not drawn
  std::vector<SamplingConfig> sampling_;       // of each slot, without logprobs
  std::vector<TokenId> guesses_;               // of each row of the pass
  std::vector<const Wish*> drafting_;          // requests of the pass that get a draft, by row
  std::vector<int32_t> num_taken_;             // of each slot: leading positions
  std::vector<std::vector<TokenId>> written_;  // of each slot: drafts whose keys follow those
  std::vector<int32_t> num_filled_;            // of each block: leading positions
};

}  // namespace tandem
