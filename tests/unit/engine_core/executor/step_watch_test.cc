#include "engine_core/executor/step_watch.h"

#include "common/clock.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr double kLimit = 300, kSlice = kLimit / StepWatch::kLooksPerLimit;
const WatchedStep kStep = {.number = 7, .num_requests = 3, .num_new_requests = 1, .num_tokens = 40};

TEST_CASE("step watch: idle, the watcher sleeps until a call wakes it, once") {
  StepWatch watch(kLimit);
  CHECK_FALSE(watch.Enter(kStep));  // the watcher is awake
  watch.Leave();
  CHECK_FALSE(watch.LookNow(0).again_in_s.has_value());
  CHECK(watch.Enter(kStep));
  watch.Leave();
  CHECK_FALSE(watch.Enter(kStep));  // it was woken already
  watch.Leave();
  CHECK_FALSE(watch.LookNow(1).again_in_s.has_value());
  CHECK(watch.Enter(kStep));
}

TEST_CASE("step watch: a call that lasts for the limit is overdue, with its step") {
  StepWatch watch(kLimit);
  ManualClock clock(50);
  watch.Enter(kStep);
  for (int i = 0; i < StepWatch::kLooksPerLimit; ++i) {
    const StepWatch::Look look = watch.LookNow(clock.Monotonic());
    CHECK_FALSE(look.overdue.has_value());
    CHECK(look.again_in_s == kSlice);
    clock.Advance(kSlice);
  }
  const StepWatch::Look last = watch.LookNow(clock.Monotonic());
  REQUIRE(last.overdue.has_value());
  CHECK(*last.overdue == kStep);
  CHECK(last.overdue->ToString() == "step 7 in Submit: 3 requests (1 of them new), 40 tokens");
}

TEST_CASE("step watch: steps that return are never overdue, however many there are") {
  StepWatch watch(kLimit);
  ManualClock clock;
  WatchedStep step = kStep;
  for (int i = 0; i < 100; ++i) {
    watch.Enter(step);
    CHECK_FALSE(watch.LookNow(clock.Monotonic()).overdue.has_value());
    clock.Advance(kLimit - 1);
    watch.Leave();
    ++step.number;
  }
}

TEST_CASE("step watch: time in which the process was stopped does not count") {
  StepWatch watch(kLimit);
  ManualClock clock;
  watch.Enter(kStep);
  watch.LookNow(clock.Monotonic());
  clock.Advance(100 * kLimit);
  for (int i = 1; i < StepWatch::kLooksPerLimit; ++i) {
    CHECK_FALSE(watch.LookNow(clock.Monotonic()).overdue.has_value());
    clock.Advance(kSlice);
  }
  CHECK(watch.LookNow(clock.Monotonic()).overdue.has_value());
}

TEST_CASE("step watch: a call that the look before found as well lasts, with a limit or without") {
  const double limit = GENERATE(300.0, 0.0);
  constexpr double kPause = 0.2;
  StepWatch watch(limit, kPause);
  watch.Enter(kStep);
  CHECK_FALSE(watch.LookNow(0).lasting.has_value());
  for (int i = 1; i < 20; ++i) {
    const StepWatch::Look look = watch.LookNow(i * kPause);
    CHECK(look.lasting == kStep);
    CHECK(look.again_in_s == kPause);
    CHECK_FALSE(look.overdue.has_value());
  }
  watch.Leave();
  watch.Enter(kStep);
  CHECK_FALSE(watch.LookNow(5).lasting.has_value());
  CHECK(watch.LookNow(6).lasting == kStep);
}

TEST_CASE("step watch: what reads files has no limit") {
  StepWatch watch(kLimit);
  const WatchedStep load = {.number = 7, .call = ExecutorCall::kRestore};
  watch.Enter(load);
  for (int i = 0; i < 10; ++i) CHECK_FALSE(watch.LookNow(i * kLimit).overdue.has_value());
  CHECK(watch.LookNow(10 * kLimit).lasting == load);
}

TEST_CASE("step watch: early looks do not add up to more time than has passed") {
  StepWatch watch(kLimit);
  watch.Enter(kStep);
  for (double now = 0; now < kLimit; now += 1) CHECK_FALSE(watch.LookNow(now).overdue.has_value());
  CHECK(watch.LookNow(kLimit).overdue.has_value());
}

}  // namespace
}  // namespace tandem
