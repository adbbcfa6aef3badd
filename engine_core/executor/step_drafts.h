#pragma once

// Drafts in the executor: puts those of a step after its requests' tokens, and once the step is
// sampled, proposes those of the next. A drafter that guesses from a request's tokens alone
// (Drafter) is asked for all it has, and the policy decides how many are worth a row; one with a
// model (PassDrafter) is asked for as many as are worth a row and a pass of its own. StepSampler
// accepts. Thread: engine loop. Owns: drafter and policy, per slot the newest proposal. Borrows the
// batch. Steady decode allocates only where an index of tokens grows.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine_core/executor/input_batch.h"
#include "engine_core/executor/pass_drafter.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/executor/step_sampler.h"
#include "engine_core/scheduler/model_output.h"
#include "engine_core/speculation/draft_policy.h"
#include "engine_core/speculation/drafter.h"
#include "engine_core/speculation/speculative_config.h"

namespace tandem {

class StepDrafts {
 public:
  // model: nullptr where the method needs none. A step verifies at most max_drafts.
  // REQUIRES: config.drafts(); the batch outlives it.
  StepDrafts(const SpeculativeConfig& config, InputBatch* batch, std::unique_ptr<PassDrafter> model,
             int64_t max_drafts, uint64_t seed);
  Status AllocateKvCache(int32_t num_blocks);

  // Of the drafter's passes, where it has any.
  void RunLargest() {
    if (model_) model_->RunLargest();
  }
  Status CaptureGraphs(std::span<const int64_t> sizes) {
    return model_ && replays_passes_ ? model_->CaptureGraphs(sizes) : OkStatus();
  }
  void DropGraphs() {
    if (model_) model_->DropGraphs();
  }
  bool has_model() const { return model_ != nullptr; }
  // PassDrafter's.  REQUIRES: has_model().
  void SetModel(DraftModel draft) { model_->SetModel(std::move(draft)); }
  void ReleaseKvCache() {
    if (model_) model_->ReleaseKvCache();
  }
  int64_t num_replays() const { return model_ ? model_->num_replays() : 0; }

  // Decides by these costs of a step from now on, and measures the drafter's.
  void Measure(StepCost step);

  // ---- before a step is laid out ----
  void Remove(RequestSlot slot);
  void Admit(RequestSlot slot, const wire::SamplingParams& params);
  void AppendBlocks(const ScheduledRequest& request, std::span<const BlockId> block_ids);
  // Drafts that the step does not name are the newest proposal. Those for which there is no room
  // are left out.
  void Place(const SchedulerOutput& step);

  // States that the model's next step shall copy (PassDrafter::Taps), and after it, of that step.
  std::span<const StateTap> Taps(int64_t num_tokens, const Tensor& room) {
    return model_ ? model_->Taps(num_tokens, room) : std::span<const StateTap>();
  }
  void TakeStates(Model* target) {
    if (model_) model_->TakeStates(target);
  }
  // Whether a step must be folded before the next one runs.
  bool reads_states() const { return model_ != nullptr && model_->reads_states(); }

  // ---- after it was sampled and folded ----
  // Reports accepted drafts and proposes new ones.
  void Fold(const StepLayout& layout, const StepSamples& samples, ModelOutput* result);
  // The step has taken this long.
  void Observe(const StepLayout& layout, double seconds);

 private:
  std::vector<TokenId>& ProposalOf(RequestSlot slot) {
    return proposals_[static_cast<size_t>(Index(slot))];
  }
  // The request's tokens that the step has emitted.
  std::span<const TokenId> Emitted(const ScheduledRequest& request) const;
  int32_t NumBehind(const ScheduledRequest& request) const;
  // The most drafts of a request that could be of use.
  int32_t MostDrafts(RequestSlot slot) const;
  void Propose(RequestSlot slot);
  void ProposeWithModel(const StepLayout& layout, const StepSamples& samples);
  void Report(const ScheduledRequest& request, DraftResult drafted, ModelOutput* result);

  InputBatch* batch_;
  const int64_t max_drafts_;
  const bool replays_passes_;
  std::unique_ptr<PassDrafter> model_;
  std::unique_ptr<Drafter> drafter_;             // null where there is a model
  std::vector<std::vector<TokenId>> proposals_;  // of each slot; may be longer than what is run
  std::optional<DraftPolicy> policy_;            // none: every draft is taken
  std::vector<int32_t> max_tokens_;              // of each slot: prompt and outputs
  std::vector<DraftPolicy::Candidate> candidates_;
  std::vector<PassDrafter::Wish> wishes_;
  int32_t num_wanted_ = 0;  // by the scheduler, for each request of the step that is folded
};

}  // namespace tandem
