#include "engine_core/speculation/draft_policy.h"

#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Candidates = std::vector<DraftPolicy::Candidate>;
using Tokens = std::vector<TokenId>;

// Each row costs a tenth of the first.
StepCost Cheap() { return StepCost({{1, 1.0}, {65, 7.4}}); }
// A row costs as much as the first: nothing is free.
StepCost Dear() { return StepCost({{1, 1.0}, {65, 65.0}}); }

// A policy that has seen this share of drafts right for the requests in all its slots.
DraftPolicy Trained(int32_t num_slots, StepCost cost, int num_right_of_ten) {
  DraftPolicy policy(num_slots, std::move(cost));
  for (int32_t slot = 0; slot < num_slots; ++slot) {
    for (int i = 0; i < 100; ++i) {
      policy.Learn(slot, Tokens{1}, Tokens{i % 10 < num_right_of_ten ? 1 : 2});
    }
  }
  return policy;
}

int32_t NumTaken(DraftPolicy policy, int32_t num_requests, int32_t num_drafts) {
  Candidates candidates;
  for (int32_t i = 0; i < num_requests; ++i) candidates.push_back({i, num_drafts, 0});
  policy.Choose(candidates);
  int32_t sum = 0;
  for (const auto& candidate : candidates) sum += candidate.num_taken;
  return sum;
}

TEST_CASE("Right drafts are taken where rows are cheap, wrong ones nowhere") {
  CHECK(NumTaken(Trained(1, Cheap(), 10), 1, 5) == 5);
  CHECK(NumTaken(Trained(1, Cheap(), 0), 1, 5) == 0);
  const int32_t half = NumTaken(Trained(1, Cheap(), 5), 1, 5);
  CHECK(half >= 1);
  CHECK(half <= 4);
}

TEST_CASE("Where each row costs as much as the first, no draft is taken") {
  CHECK(NumTaken(Trained(1, Dear(), 9), 1, 5) == 0);
  CHECK(NumTaken(Trained(8, Dear(), 10), 8, 5) == 0);
}

TEST_CASE("Of a batch, the request whose drafts are right gets them") {
  DraftPolicy policy(2, Cheap());
  for (int i = 0; i < 50; ++i) {
    policy.Learn(0, Tokens{1, 2}, Tokens{3});
    policy.Learn(1, Tokens{1, 2}, Tokens{1, 2, 9});
  }
  Candidates candidates = {{0, 4, 0}, {1, 4, 0}};
  policy.Choose(candidates);
  CHECK(candidates[0].num_taken == 0);
  CHECK(candidates[1].num_taken == 4);
}

TEST_CASE("Drafts after a wrong one are no evidence, a new request starts afresh") {
  DraftPolicy policy(1, Cheap());
  const double first = policy.chance(0);
  policy.Learn(0, Tokens{1, 2, 3}, Tokens{1, 9, 3});
  DraftPolicy other(1, Cheap());
  other.Learn(0, Tokens{1, 2}, Tokens{1, 9});
  CHECK(policy.chance(0) == other.chance(0));
  CHECK(policy.chance(0) != first);
  policy.Begin(0);
  CHECK(policy.chance(0) == first);
}

// Passes of a drafter that take this share of a step.
StepCost Passes(double share) { return StepCost({{1, share}, {33, 1.5 * share}}); }

TEST_CASE("Drafts of a model are made while their passes pay") {
  const auto num_taken = [](int32_t num_requests, double share, int num_right_of_ten) {
    DraftPolicy policy = Trained(num_requests, Cheap(), num_right_of_ten);
    policy.SetDraftCost(Passes(share));
    return NumTaken(std::move(policy), num_requests, 5);
  };
  CHECK(num_taken(1, 0.05, 10) == 5);
  CHECK(num_taken(1, 0.2, 10) == 5);
  CHECK(num_taken(1, 2.0, 10) == 0);
  CHECK(num_taken(1, 0.05, 0) == 0);
  CHECK(num_taken(1, 0.3, 5) < num_taken(1, 0.01, 5));
  CHECK(num_taken(8, 0.05, 10) > num_taken(8, 2.0, 10));
}

TEST_CASE("A drafter that is always wrong is tried again, seldom") {
  DraftPolicy policy(1, Cheap());
  policy.SetDraftCost(Passes(0.1));
  CHECK(policy.MayDraft());
  int num_passes = 0;
  for (int step = 0; step < 2000; ++step) {
    Candidates candidates = {{.slot = 0, .num_drafts = 3, .num_behind = 1}};
    policy.Choose(candidates);
    num_passes += candidates[0].num_taken;
    policy.Learn(0, Tokens(static_cast<size_t>(candidates[0].num_taken), 1), Tokens{2});
  }
  CHECK(num_passes > 2);
  CHECK(num_passes < 60);
  // Nor do others begin with it.
  CHECK(policy.chance(0) < 0.3);
  policy.Begin(0);
  CHECK(policy.chance(0) < 0.4);
}

TEST_CASE("No request, no drafts, and drafts without proposals are none") {
  CHECK(NumTaken(Trained(1, Cheap(), 10), 0, 5) == 0);
  CHECK(NumTaken(Trained(1, Cheap(), 10), 1, 0) == 0);
}

TEST_CASE("The cost of rows follows what steps take, and forgets one slow step") {
  StepCost cost({{1, 1.0}, {2, 1.1}, {4, 1.3}});
  CHECK(cost.Relative(1, 0) == Approx(1));
  CHECK(cost.Relative(1, 3) == Approx(1.3));
  CHECK(cost.Relative(1, 9) == Approx(1.9));
  // Everything takes three times as long: relative costs stay.
  for (int i = 0; i < 100; ++i) {
    cost.Observe(1, 0, 3.0);
    cost.Observe(1, 3, 3.9);
  }
  CHECK(cost.Relative(1, 3) == Approx(1.3).margin(0.01));
  // Rows have become dearer.
  for (int i = 0; i < 100; ++i) cost.Observe(1, 3, 3.0 * 1.9);
  CHECK(cost.Relative(1, 3) == Approx(1.9).margin(0.01));
  for (int i = 0; i < 400; ++i) cost.Observe(1, 0, 3.0);
  CHECK(cost.Relative(1, 3) == Approx(1.3).margin(0.01));
}

}  // namespace
}  // namespace tandem
