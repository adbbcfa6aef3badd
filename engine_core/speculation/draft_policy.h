#pragma once

// How many of its drafts a request may verify in the next step, so that drafting never slows.
// Drafts from tokens are proposed in every step, which costs next to nothing, and compared with
// what the model then emits, also those that no step verifies: so each request has an estimate of
// the share of drafts that are right, and drafting begins and ends without a trial that costs
// something. Drafts of a model cost passes of it (SetDraftCost), so it is decided before they are
// made. Of a request without any nothing is learned; its estimate goes back to the first one,
// slowly, so that a trial comes now and then. A new request begins with what is usual. The rule:
// with the chance a that a request's next draft is right, its j-th draft is worth a^j tokens.
// Drafts are taken in the order of their worth over all requests of the batch, as many as make
// (tokens expected of the step) / (its cost) largest; none, unless that gains kLeastGain. In a
// batch whose weights are not free any more, or where drafts are mostly wrong, that is 0.
// Thread: engine loop. Pure. What it decides never changes an output.

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "engine_core/speculation/step_cost.h"

namespace tandem {

class DraftPolicy {
 public:
  // A request of the next step, its proposed drafts, and how many of them the policy leaves.
  struct Candidate {
    int32_t slot = 0;
    int32_t num_drafts = 0;
    int32_t num_behind = 0;  // tokens that the drafter's first pass takes in
    int32_t num_taken = 0;
  };

  DraftPolicy(int32_t num_slots, StepCost cost);

  // A new request in this slot.
  void Begin(int32_t slot);
  // What was proposed after a request's tokens, and the tokens that the model emitted there.
  void Learn(int32_t slot, std::span<const TokenId> proposed, std::span<const TokenId> emitted);
  // Sets num_taken of all requests of the next step.
  void Choose(std::span<Candidate> candidates);

  // Drafts cost passes: the j-th drafts of all requests are one pass, with a row of each. Seconds,
  // as those of cost().
  void SetDraftCost(StepCost cost) { draft_cost_ = std::move(cost); }
  // Whether a usual request, alone, would get a draft.
  bool MayDraft() const;

  StepCost& cost() { return cost_; }
  double chance(int32_t slot) const { return chances_[static_cast<size_t>(slot)]; }

 private:
  // The worth of a candidate's next draft.
  struct Offer {
    double worth = 0;
    size_t candidate = 0;
    friend bool operator<(const Offer& a, const Offer& b) { return a.worth < b.worth; }
  };

  // A draft more of this candidate, relative to a step of num_requests.
  double AddToPass(const Candidate& candidate, int32_t num_requests);

  StepCost cost_;
  std::optional<StepCost> draft_cost_;
  double usual_chance_;                // of requests that begin
  std::vector<int32_t> rows_of_pass_;  // of the drafts that are taken so far
  std::vector<double> chances_;        // of each slot, that a draft is right if those before it are
  std::vector<Offer> offers_;          // a heap
  std::vector<size_t> order_;          // candidates in the order of their drafts' worth
};

}  // namespace tandem
