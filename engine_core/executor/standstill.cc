#include "engine_core/executor/standstill.h"

#include <algorithm>
#include <vector>

namespace tandem {
namespace {

// More than a thread uses that was woken by mistake and sleeps again.
constexpr double kComputingSeconds = 1e-3;

bool IsAtStand(const StandstillLook& look) {
  return look.others_wait && look.loop == ThreadState::kAwaitsWord;
}

// A thread that waits for another rank wakes now and then to look for itself, so there the number
// of its wait counts and not its CPU time.
bool IsUnchanged(const StandstillLook& before, const StandstillLook& now) {
  if (before.step != now.step || before.wait != now.wait) return false;
  return WaitMark::KindOf(now.wait) != 0 || now.loop_cpu_s - before.loop_cpu_s < kComputingSeconds;
}

}  // namespace

Standstill StandstillRule::Add(const StandstillLook& look) {
  const bool goes_on = !IsAtStand(last_) || !IsAtStand(look) || !IsUnchanged(last_, look);
  num_looks_ = goes_on ? 0 : num_looks_ + 1;
  last_ = look;
  return {.num_looks = num_looks_, .awaits_ranks = WaitMark::KindOf(look.wait) != 0};
}

RanksVerdict JudgeRanks(std::span<const Standstill> ranks, int most_looks) {
  bool all_wait = true;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].num_stuck_looks() >= most_looks) {
      return {RanksVerdict::Kind::kOneStands, static_cast<int>(rank)};
    }
    all_wait &= ranks[rank].num_looks >= most_looks;
  }
  return {all_wait ? RanksVerdict::Kind::kAllWait : RanksVerdict::Kind::kGoOn};
}

// What the thread that runs the step is at is read before what the others are at, and once more
// after it: one that has ended its part in between has woken it.
Standstill StandstillWatch::Look(int64_t step) {
  const auto see = [&] {
    return StandstillLook{.step = step,
                          .loop = ReadThreadState(loop_),
                          .loop_cpu_s = loop_clock_.Seconds(),
                          .wait = wait_ == nullptr ? 0 : wait_->load(std::memory_order_relaxed)};
  };
  const StandstillLook before = see();
  if (before.loop != ThreadState::kAwaitsWord) return rule_.Add({});
  const bool others_wait = OthersWait();
  StandstillLook after = see();
  after.others_wait = others_wait && IsUnchanged(before, after);
  return rule_.Add(after);
}

bool StandstillWatch::OthersWait() const {
  const std::vector<pid_t> threads = OwnThreads();
  const auto waits = [this, self = OwnThread()](pid_t thread) {
    return thread == self || thread == loop_ || ReadThreadState(thread) != ThreadState::kRuns;
  };
  return !threads.empty() && std::ranges::all_of(threads, waits);
}

}  // namespace tandem
