#include "engine_core/speculation/draft_policy.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// Before anything is known: more than one draft then must be nearly free.
constexpr double kFirstChance = 0.4;
// Of the estimate, taken from each draft. Text that begins to repeat is believed after three or
// four drafts, and one miss in ten costs little.
constexpr double kWeight = 0.2;
// The same for what is usual: over some fifty drafts.
constexpr double kUsualWeight = 0.02;
// Of the way back to the first estimate, taken by each step without drafts of a model. With drafts
// that are all wrong there is one in some sixty tokens, at less than a hundredth of the time.
constexpr double kForgotten = 0.004, kUsualForgotten = 0.0005;
// Tokens that a first pass is charged for: those of a gap are taken in once.
constexpr int32_t kMostBehind = 4;
constexpr double kLeastGain = 1.03;
// Rows that drafts may add to a step: past this no CPU has weights to spare.
constexpr size_t kMostRows = 64;

}  // namespace

DraftPolicy::DraftPolicy(int32_t num_slots, StepCost cost)
    : cost_(std::move(cost)),
      usual_chance_(kFirstChance),
      chances_(static_cast<size_t>(num_slots), kFirstChance) {
  offers_.reserve(chances_.size());
  order_.reserve(kMostRows);
}

void DraftPolicy::Begin(int32_t slot) {
  chances_[static_cast<size_t>(slot)] = draft_cost_ ? usual_chance_ : kFirstChance;
}

bool DraftPolicy::MayDraft() const {
  const double pass = draft_cost_ ? draft_cost_->Seconds(1) / cost_.Seconds(1) : 0;
  return 1 + usual_chance_ > kLeastGain * (cost_.Relative(1, 1) + pass);
}

void DraftPolicy::Learn(int32_t slot, std::span<const TokenId> proposed,
                        std::span<const TokenId> emitted) {
  double& chance = chances_[static_cast<size_t>(slot)];
  if (draft_cost_ && proposed.empty()) {
    chance += kForgotten * std::max(0.0, kFirstChance - chance);
    usual_chance_ += kUsualForgotten * std::max(0.0, kFirstChance - usual_chance_);
  }
  for (size_t i = 0; i < std::min(proposed.size(), emitted.size()); ++i) {
    const bool is_right = proposed[i] == emitted[i];
    chance += kWeight * ((is_right ? 1.0 : 0.0) - chance);
    usual_chance_ += kUsualWeight * ((is_right ? 1.0 : 0.0) - usual_chance_);
    if (!is_right) return;
  }
}

void DraftPolicy::Choose(std::span<Candidate> candidates) {
  offers_.clear();
  order_.clear();
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].num_taken = 0;
    if (candidates[i].num_drafts > 0) offers_.push_back({chance(candidates[i].slot), i});
  }
  std::make_heap(offers_.begin(), offers_.end());
  const auto num_requests = static_cast<int32_t>(candidates.size());
  double tokens = num_requests, best = tokens * kLeastGain, drafting = 0;
  size_t num_best = 0;
  rows_of_pass_.clear();
  while (!offers_.empty() && order_.size() < kMostRows) {
    std::pop_heap(offers_.begin(), offers_.end());
    Offer& offer = offers_.back();
    Candidate& candidate = candidates[offer.candidate];
    tokens += offer.worth;
    drafting += AddToPass(candidate, num_requests);
    order_.push_back(offer.candidate);
    const double rate =
        tokens / (cost_.Relative(num_requests, static_cast<int32_t>(order_.size())) + drafting);
    if (rate > best) {
      best = rate;
      num_best = order_.size();
    }
    offer.worth *= chance(candidate.slot);
    if (++candidate.num_taken == candidate.num_drafts) {
      offers_.pop_back();
    } else {
      std::push_heap(offers_.begin(), offers_.end());
    }
  }
  for (size_t i = num_best; i < order_.size(); ++i) --candidates[order_[i]].num_taken;
}

double DraftPolicy::AddToPass(const Candidate& candidate, int32_t num_requests) {
  if (!draft_cost_) return 0;
  const auto pass = static_cast<size_t>(candidate.num_taken);
  if (pass >= rows_of_pass_.size()) rows_of_pass_.resize(pass + 1);
  int32_t& num_rows = rows_of_pass_[pass];
  const double before = num_rows == 0 ? 0 : draft_cost_->Seconds(num_rows);
  num_rows += pass == 0 ? std::clamp(candidate.num_behind, 1, kMostBehind) : 1;
  return (draft_cost_->Seconds(num_rows) - before) / cost_.Seconds(num_requests);
}

}  // namespace tandem
