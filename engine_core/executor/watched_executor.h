#pragma once

// An Executor whose calls are watched. A step that does not return within a limit means that the
// worker is lost, and nothing can bring the calling thread back: on_overdue is called on the
// watcher's thread and is expected to end the process. step_watch.h defines the limit. Before that,
// while one call lasts, on_lasting may look at what runs it.
// Threads: the engine's loop; one watcher, which sleeps while nothing executes and otherwise wakes
// a few times per limit, or every kLookMs. Owns: neither executor nor clock. Failure: the
// executor's own.

#include <array>
#include <functional>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/mailbox.h"
#include "engine_core/executor/executor.h"
#include "engine_core/executor/step_watch.h"

namespace tandem {

class WatchedExecutor final : public Executor {
 public:
  // Called once; `what` names the step, its batch and the call.
  using OnOverdue = std::function<void(const std::string& what)>;

  // Called every kLookMs from kLookMs on that a call lasts.
  using OnLasting = std::function<void(const WatchedStep& step)>;
  static constexpr int kLookMs = 200;

  // limit_s: 0: none. on_lasting: empty: nothing is looked at. REQUIRES: one of them.
  WatchedExecutor(Executor* executor, double limit_s, const Clock* clock, OnOverdue on_overdue,
                  OnLasting on_lasting = {});
  ~WatchedExecutor() override;

  const ExecutorLimits& limits() const override { return executor_->limits(); }
  Status Submit(const SchedulerOutput& step) override;
  Status Collect(ModelOutput* result) override;
  Status Release(const MemoryParts& parts, bool rereads) override;
  Status Restore(const MemoryParts& parts) override;

 private:
  enum class Wake {};

  WatchedStep& StepAt(int64_t number) {
    return in_flight_[static_cast<size_t>(number) % kMaxStepsInFlight];
  }
  void Enter(const WatchedStep& step);
  void Watch();

  Executor* executor_;
  const double limit_s_;
  const Clock* clock_;
  const OnOverdue on_overdue_;
  const OnLasting on_lasting_;
  StepWatch watch_;
  std::array<WatchedStep, kMaxStepsInFlight> in_flight_;
  int64_t num_submitted_ = 0;
  int64_t num_collected_ = 0;
  Mailbox<Wake> wake_;  // closed: the watcher ends
  std::thread watcher_;
};

}  // namespace tandem
