#include "engine_core/executor/watched_executor.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "engine_core/scheduler/model_output.h"
#include "engine_core/scheduler/scheduler_output.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Time passes for the watcher only during the call that hangs, so that a loaded machine makes no
// other call overdue.
class HangClock final : public Clock {
 public:
  double Monotonic() const override { return now_ = now_ + (runs ? 1 : 0); }
  double Unix() const override { return 0; }
  std::atomic<bool> runs = false;

 private:
  mutable std::atomic<double> now_ = 0;
};

// Each call waits at its gate until the test opens it.
class WaitingExecutor final : public Executor {
 public:
  explicit WaitingExecutor(HangClock* clock) : clock_(clock) {}
  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(const SchedulerOutput&) override { return Pass(submit_gate); }
  Status Collect(ModelOutput*) override { return Pass(collect_gate); }

  Mailbox<int>* submit_gate = nullptr;
  Mailbox<int>* collect_gate = nullptr;

 private:
  Status Pass(Mailbox<int>* gate) {
    if (gate == nullptr) return OkStatus();
    clock_->runs = true;
    gate->Wait();
    clock_->runs = false;
    return UnavailableError("let go");
  }
  HangClock* clock_;
  ExecutorLimits limits_ = {.num_blocks = 9};
};

struct World {
  HangClock clock;
  WaitingExecutor executor{&clock};
  Mailbox<int> gate;
  Mailbox<std::string> overdue;
  WatchedExecutor watched{&executor, 0.02, &clock,
                          [this](const std::string& what) { overdue.Push(what); }};

  // The report of a call whose gate stays closed.
  std::string WaitOverdue() {
    if (!overdue.WaitFor(std::chrono::seconds(60))) return "nothing";
    std::vector<std::string> all;
    overdue.Drain(&all);
    return all.front();
  }
};

SchedulerOutput TwoRequests() {
  SchedulerOutput step;
  step.requests.resize(2);
  step.admitted.resize(1);
  step.num_scheduled_tokens = 17;
  return step;
}

TEST_CASE("watched executor: a Submit that does not return is reported with its batch") {
  World world;
  ModelOutput output;
  REQUIRE(world.watched.Submit(SchedulerOutput()).ok());
  REQUIRE(world.watched.Collect(&output).ok());
  world.executor.submit_gate = &world.gate;
  Status status;
  std::thread loop([&] { status = world.watched.Submit(TwoRequests()); });
  const std::string what = world.WaitOverdue();
  world.gate.Close();
  loop.join();
  CHECK(what == "step 2 in Submit: 2 requests (1 of them new), 17 tokens, not back after 0.02 s");
  CHECK(status.code() == StatusCode::kUnavailable);  // the executor's own
}

TEST_CASE("watched executor: a Collect that does not return names the oldest step in flight") {
  World world;
  REQUIRE(world.watched.Submit(TwoRequests()).ok());
  REQUIRE(world.watched.Submit(SchedulerOutput()).ok());
  world.executor.collect_gate = &world.gate;
  ModelOutput output;
  std::thread loop([&] { (void)world.watched.Collect(&output); });
  const std::string what = world.WaitOverdue();
  world.gate.Close();
  loop.join();
  CHECK(what == "step 1 in Collect: 2 requests (1 of them new), 17 tokens, not back after 0.02 s");
}

TEST_CASE("watched executor: what runs a call that lasts is looked at, without a limit too") {
  HangClock clock;
  WaitingExecutor executor(&clock);
  Mailbox<int> gate;
  Mailbox<WatchedStep> looks;
  WatchedExecutor watched(
      &executor, /*limit_s=*/0, &clock, [](const std::string&) { CHECK(false); },
      [&](const WatchedStep& step) { looks.Push(step); });
  executor.submit_gate = &gate;
  std::thread loop([&] { (void)watched.Submit(TwoRequests()); });
  for (int i = 0; i < 2; ++i) {
    REQUIRE(looks.WaitFor(std::chrono::seconds(60)));
    std::vector<WatchedStep> seen;
    looks.Drain(&seen);
    CHECK(seen.front().ToString() == "step 1 in Submit: 2 requests (1 of them new), 17 tokens");
  }
  gate.Close();
  loop.join();
}

TEST_CASE("watched executor: one that is idle or at work ends at once and reports nothing") {
  World world;
  ModelOutput output;
  CHECK(world.watched.limits().num_blocks == 9);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(world.watched.Submit(TwoRequests()).ok());
    REQUIRE(world.watched.Collect(&output).ok());
  }
  std::vector<std::string> reports;
  CHECK_FALSE(world.overdue.Drain(&reports));
}

}  // namespace
}  // namespace tandem
