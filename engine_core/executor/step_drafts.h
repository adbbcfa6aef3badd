#pragma once

// Drafts in the executor: puts those of a step after its requests' tokens, and once the step is
// sampled, proposes those of the next. A drafter guesses from a request's tokens alone; the policy
// decides how many of its guesses are worth a row. StepSampler accepts.
// Thread: engine loop. Owns: drafter and policy, per slot the newest proposal. Borrows the batch.
// Steady decode allocates only where an index of tokens grows.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine_core/executor/input_batch.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/executor/step_sampler.h"
#include "engine_core/scheduler/model_output.h"
#include "engine_core/speculation/draft_policy.h"
#include "engine_core/speculation/drafter.h"
#include "engine_core/speculation/speculative_config.h"

namespace tandem {

class StepDrafts {
 public:
  // REQUIRES: config.drafts(); the batch outlives it.
  StepDrafts(const SpeculativeConfig& config, InputBatch* batch, uint64_t seed);

  // Decides by these costs from now on.
  void SetCost(StepCost cost);

  // ---- before a step is laid out ----
  void Remove(RequestSlot slot);
  void Admit(RequestSlot slot);
  // Drafts that the step does not name are the newest proposal.
  void Place(const SchedulerOutput& step);

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
  void Propose(RequestSlot slot);
  void Report(const ScheduledRequest& request, DraftResult drafted, ModelOutput* result);

  InputBatch* batch_;
  std::unique_ptr<Drafter> drafter_;
  std::vector<std::vector<TokenId>> proposals_;  // of each slot; may be longer than what is run
  std::optional<DraftPolicy> policy_;            // none: every draft is taken
  std::vector<DraftPolicy::Candidate> candidates_;
  int32_t num_wanted_ = 0;  // by the scheduler, for each request of the step
};

}  // namespace tandem
