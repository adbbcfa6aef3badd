#pragma once

// Drafts by passes of a model over the batch: the first takes in the tokens that are new, each
// further one the guesses of the one before. A guess is the likeliest token, or what the request's
// own sampler draws from the pass's logits with the draw of that position, which the target's token
// will have too. On a device likeliest tokens stay there from pass to pass, and the host reads all
// guesses when the last pass is done; passes after the first are replayed from graphs where the
// drafter's ops are the same in each. Drawn tokens are drawn on the host. Implementations:
// ModelDrafter, HeadDrafter, MedusaDrafter. Keys and values lie in a cache of its own, which has
// the target's blocks: a position of a request lies in the same block and place of both. So block
// tables, prefix hits and preemption are the target's alone, and nothing but speed depends on what
// is in it. Thread: engine loop. Owns: its cache, the buffers of a pass, the graphs. Borrows
// backend and batch, which outlive it. Steady decode allocates nothing. Failure: memory, in
// Allocate and AllocateKvCache; a capture that the device refuses.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "engine_core/executor/decode_graphs.h"
#include "engine_core/executor/draft_model.h"
#include "engine_core/executor/input_batch.h"
#include "engine_core/executor/shared_tensor.h"
#include "engine_core/executor/step_inputs.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/sampling/scratch_pool.h"
#include "engine_core/speculation/step_cost.h"
#include "kernels/backend.h"

namespace tandem {

class PassDrafter {
 public:
  virtual ~PassDrafter() = default;
  virtual Status AllocateKvCache(int32_t num_blocks);

  // ---- before a step ----
  // What the step has appended to the request's block table.
  virtual void AppendBlocks(const ScheduledRequest& request, std::span<const BlockId> block_ids);
  // States of the target that its next step shall copy. room: [num_tokens, .] act, where the
  // stages before have put theirs, until the step is folded; empty: the drafter's own.
  virtual std::span<const StateTap> Taps(int64_t /*num_tokens*/, const Tensor& /*room*/) {
    return {};
  }

  // ---- after it ran ----
  virtual void TakeStates(Model* /*target*/) {}

  // ---- after it was sampled ----
  // The most drafts that there is room for after the request's tokens.
  int32_t RoomFor(RequestSlot slot) const;
  // Tokens that the first pass takes in of a request to which the step has added num_emitted.
  virtual int32_t NumBehind(RequestSlot slot, int32_t num_emitted) const = 0;
  // Whether requests without drafts are taken in after each step, too: what it reads is gone then.
  virtual bool reads_states() const { return false; }
  struct Wish {
    RequestSlot slot{};
    int32_t num_tokens = 0;  // of the request, to be taken in
    int32_t num_drafts = 0;  // at most RoomFor; 0: no more than that. Else num_tokens is all
    std::vector<TokenId>* drafts = nullptr;  // empty
    // The request's part of the step: positions, and the row of the first.
    int32_t begin = 0, count = 0, first_row = 0;
  };
  // Takes in at most a step's tokens: a request that stays behind gets no drafts.
  void Propose(std::span<const Wish> wishes);

  // ---- sleep ----
  // In place of what it had, of equal shapes; empty: what it had is gone, and no pass may run.
  virtual void SetModel(DraftModel draft) = 0;
  void ReleaseKvCache() { kv_cache_.reset(); }

  // ---- at start ----
  // A pass of the largest size, after which all memory that passes need is taken.
  void RunLargest();
  // Of passes of one token for each request, by the number of requests.
  Status CaptureGraphs(std::span<const int64_t> sizes);
  void DropGraphs() { graphs_.reset(); }
  // Times passes of some sizes.
  std::vector<StepCost::Point> Measure();
  int64_t num_replays() const { return graphs_ ? graphs_->num_replays() : 0; }

 protected:
  // shift: position p has the request's token p + shift.
  PassDrafter(Backend* backend, const DraftModel& draft, int32_t shift, KvFormat kv_format,
              InputBatch* batch);
  Status Allocate();

  // Adds chunks of the wishes' tokens.
  virtual void TakeIn(std::span<const Wish> wishes) = 0;
  virtual void TakeDrafts(std::span<const Wish> /*wishes*/) {}
  // Whether passes after the first differ in their inputs alone.
  virtual bool repeats_ops() const { return true; }
  // What the pass's ops read beside the inputs, for num_tokens tokens.
  virtual void SendRows(int64_t /*num_tokens*/) {}
  virtual void Forward(const StepInputs::Views& inputs) = 0;
  // Of the rows of layout_.logits_rows from `first` on, which are `rows` on the device.
  virtual void Logits(const Tensor& logits, int64_t first, const Tensor& rows) = 0;

  // Adds a chunk of the request's positions to the first pass.
  void AddChunk(const Wish& wish, int32_t begin, int32_t count);
  // The positions of a request that there is room for.
  int32_t NumPositions(RequestSlot slot) const;

  Backend* backend_;
  InputBatch* batch_;
  KvCacheSpec kv_spec_;
  const int32_t shift_;
  std::unique_ptr<KvCache> kv_cache_;
  std::unique_ptr<AttentionPlan> plan_;
  StepLayout layout_;
  bool is_first_pass_ = true;
  // Of a further pass, by row: the row of the pass before that made its token.
  std::vector<int32_t> parent_rows_;

 private:
  bool DraftNext();
  // Runs what layout_ has; guesses_ has a token of each of its rows of logits, or stands for it.
  void RunPass();
  void SendInputs();
  void RunOps();
  void DrawOnHost(int64_t first, int64_t count);
  void SendPadding(int64_t num_tokens, int64_t num_logits_rows);
  // Puts guesses in place of what stands for them.
  void TakeGuesses(std::span<const Wish> wishes);
  void ShiftTokens();
  TokenId Guess(size_t row_idx, std::span<float> logits, SamplerScratch* scratch);

  AttentionShape attention_shape_;
  int32_t max_positions_;
  StepInputs inputs_;
  std::optional<DecodeGraphs> graphs_;  // of passes after the first
  SharedTensor logits_;                 // [max_logits_rows, V] f32
  // Of a device that finds the likeliest tokens. Row i's is number i + 1 of the last pass's; until
  // it is known, ~(i + 1) stands for it, because ~0 is kNoToken.
  OwnedTensor guess_ids_;      // [1 + max_num_seqs] i32
  OwnedTensor guess_staging_;  // [passes, 1 + max_num_seqs] i32, the host's
  int64_t num_passes_ = 0;
  std::unique_ptr<ScratchPool> scratch_;  // null: drafts are not drawn
  std::vector<SamplingConfig> sampling_;  // of each slot, without logprobs
  std::vector<TokenId> guesses_;          // of each row of the pass
  std::vector<const Wish*> drafting_;     // requests of the pass that get a draft, by row
};

}  // namespace tandem
