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
constexpr double kLeastGain = 1.03;
// Rows that drafts may add to a step: past this no CPU has weights to spare.
constexpr size_t kMostRows = 64;

}  // namespace

DraftPolicy::DraftPolicy(int32_t num_slots, StepCost cost)
    : cost_(std::move(cost)), chances_(static_cast<size_t>(num_slots), kFirstChance) {
  offers_.reserve(chances_.size());
  order_.reserve(kMostRows);
}

void DraftPolicy::Begin(int32_t slot) { chances_[static_cast<size_t>(slot)] = kFirstChance; }

void DraftPolicy::Learn(int32_t slot, std::span<const TokenId> proposed,
                        std::span<const TokenId> emitted) {
  double& chance = chances_[static_cast<size_t>(slot)];
  for (size_t i = 0; i < std::min(proposed.size(), emitted.size()); ++i) {
    const bool is_right = proposed[i] == emitted[i];
    chance += kWeight * ((is_right ? 1.0 : 0.0) - chance);
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
  double tokens = num_requests, best = tokens * kLeastGain;
  size_t num_best = 0;
  while (!offers_.empty() && order_.size() < kMostRows) {
    std::pop_heap(offers_.begin(), offers_.end());
    Offer& offer = offers_.back();
    Candidate& candidate = candidates[offer.candidate];
    tokens += offer.worth;
    order_.push_back(offer.candidate);
    const double rate = tokens / cost_.Relative(num_requests, static_cast<int32_t>(order_.size()));
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

}  // namespace tandem
