#include "engine_core/executor/standstill.h"

#include <atomic>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "common/mailbox.h"
#include "kernels/compute_pool.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int kMost = 5;
constexpr uint8_t kKind = 2;

StandstillLook Stuck() {
  return {.step = 7, .loop = ThreadState::kAwaitsWord, .loop_cpu_s = 3, .others_wait = true};
}

TEST_CASE(
    "standstill: a step whose thread waits for a lock is at a stand, from the second look on") {
  StandstillRule rule;
  for (int i = 0; i < kMost; ++i) CHECK(rule.Add(Stuck()).num_looks == i);
  CHECK(rule.Add(Stuck()).num_stuck_looks() == kMost);
  StandstillLook next = Stuck();
  next.step = 8;
  CHECK(rule.Add(next).num_looks == 0);
}

TEST_CASE("standstill: a wait for another rank counts apart, and waits have numbers") {
  WaitWord word{0};
  const WaitMark mark(&word, kKind);
  mark.Begin();
  StandstillRule rule;
  StandstillLook look = Stuck();
  look.wait = word.load();
  Standstill found;
  for (int i = 0; i <= kMost; ++i) {
    look.loop_cpu_s += 0.01;  // it wakes to look for itself
    found = rule.Add(look);
    CHECK(found.num_looks == i);
    CHECK(found.num_stuck_looks() == 0);
  }
  mark.End();
  CHECK(WaitMark::KindOf(word.load()) == 0);
  mark.Begin();
  CHECK(WaitMark::KindOf(word.load()) == kKind);
  look.wait = word.load();
  CHECK(rule.Add(look).num_looks == 0);
}

// Whatever else the looks find: one sign of life among kMost in a row is enough.
TEST_CASE("standstill: no process that does something is at a stand") {
  const std::vector<std::function<void(StandstillLook*)>> signs = {
      [](StandstillLook* look) { look->loop = ThreadState::kRuns; },  // or D, or it lacks a CPU
      [](StandstillLook* look) { look->loop = ThreadState::kAwaitsEvent; },
      [](StandstillLook* look) { look->others_wait = false; },  // a thread computes, reads a page
      [](StandstillLook* look) { look->loop_cpu_s += 0.002; },
      [](StandstillLook* look) { ++look->step; },
      [](StandstillLook* look) { look->wait += 0x100; },  // it waits for a rank once more
  };
  std::mt19937 dice(20261127);
  for (int round = 0; round < 500; ++round) {
    StandstillRule rule;
    StandstillLook steady = Stuck();
    int until_sign = 0;
    for (int i = 0; i < 200; ++i) {
      StandstillLook look = steady;
      if (until_sign-- == 0) {
        signs[dice() % signs.size()](&look);
        // What has changed stays, what a thread did at that moment does not.
        steady.step = look.step;
        steady.loop_cpu_s = look.loop_cpu_s;
        steady.wait = look.wait;
        until_sign = static_cast<int>(dice() % kMost);
      }
      REQUIRE(rule.Add(look).num_looks < kMost);
    }
  }
}

TEST_CASE("standstill: a rank that stands is lost, and so are all that wait for each other") {
  using Kind = RanksVerdict::Kind;
  const Standstill works = {}, waits = {kMost, true}, stuck = {kMost, false};
  const auto judge = [](const std::vector<Standstill>& ranks) { return JudgeRanks(ranks, kMost); };
  CHECK(judge({waits, works}).kind == Kind::kGoOn);  // for one that takes long
  CHECK(judge({works, works}).kind == Kind::kGoOn);
  CHECK(judge({waits, {kMost - 1, true}}).kind == Kind::kGoOn);
  CHECK(judge({waits, waits}).kind == Kind::kAllWait);
  for (const Standstill& other : {waits, works}) {
    const RanksVerdict verdict = judge({other, other, stuck});
    CHECK(verdict.kind == Kind::kOneStands);
    CHECK(verdict.rank == 2);
  }
}

// A thread that runs steps, as an engine's loop.
struct Loop {
  explicit Loop(std::function<void()> step) {
    thread = std::thread([this, step] {
      watch.emplace();
      is_there.Push(1);
      step();
    });
    is_there.Wait();
  }
  int Look() { return watch->Look(1).num_stuck_looks(); }
  void AwaitStand() {
    while (Look() < kMost) std::this_thread::yield();
  }

  std::optional<StandstillWatch> watch;
  Mailbox<int> is_there;
  std::thread thread;
};

TEST_CASE("standstill: a thread that blocks for ever is found while its process lives") {
  Mailbox<int> lock;
  Loop loop([&] { lock.Wait(); });
  loop.AwaitStand();
  // Another thread may be about to open the lock.
  std::atomic<bool> computes = true;
  std::thread other([&] {
    while (computes) {
    }
  });
  for (int i = 0; i < 3 * kMost; ++i) CHECK(loop.Look() == 0);
  computes = false;
  other.join();
  loop.AwaitStand();
  lock.Close();
  loop.thread.join();
}

TEST_CASE("standstill: so is a thread of the pool that blocks in its part") {
  Mailbox<int> lock, is_taken;
  ComputePool pool(2);
  Loop loop([&] {
    pool.Run(2, 1, [&](int64_t, int64_t, int thread) {
      if (thread == 0) return is_taken.Wait();
      is_taken.Push(1);
      lock.Wait();
    });
  });
  loop.AwaitStand();
  lock.Close();
  loop.thread.join();
}

TEST_CASE("standstill: a step that computes is none, on the loop's thread or on another") {
  std::atomic<bool> computes = true;
  ComputePool pool(2);
  Loop loop([&] {
    pool.Run(2, 1, [&](int64_t, int64_t, int) {
      while (computes) {
      }
    });
  });
  for (int i = 0; i < 200; ++i) CHECK(loop.Look() == 0);
  computes = false;
  loop.thread.join();
}

}  // namespace
}  // namespace tandem
