#include "engine_core/executor/watched_executor.h"

#include <chrono>
#include <sstream>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/log.h"
#include "engine_core/scheduler/scheduler_output.h"

namespace tandem {

WatchedExecutor::WatchedExecutor(Executor* executor, double limit_s, const Clock* clock,
                                 OnOverdue on_overdue, OnLasting on_lasting)
    : executor_(executor),
      limit_s_(limit_s),
      clock_(clock),
      on_overdue_(std::move(on_overdue)),
      on_lasting_(std::move(on_lasting)),
      watch_(limit_s, on_lasting_ ? kLookMs * 1e-3 : 0) {
  CHECK(limit_s > 0 || on_lasting_) << limit_s;
  watcher_ = std::thread([this] { Watch(); });
}

WatchedExecutor::~WatchedExecutor() {
  wake_.Close();
  watcher_.join();
}

Status WatchedExecutor::Submit(const SchedulerOutput& step) {
  WatchedStep& watched = StepAt(++num_submitted_);
  watched = {.number = num_submitted_,
             .num_requests = static_cast<int32_t>(step.requests.size()),
             .num_new_requests = static_cast<int32_t>(step.admitted.size()),
             .num_tokens = step.num_scheduled_tokens,
             .call = ExecutorCall::kSubmit};
  Enter(watched);
  Status status = executor_->Submit(step);
  watch_.Leave();
  return status;
}

Status WatchedExecutor::Collect(ModelOutput* result) {
  WatchedStep& watched = StepAt(++num_collected_);
  watched.call = ExecutorCall::kCollect;
  Enter(watched);
  Status status = executor_->Collect(result);
  watch_.Leave();
  return status;
}

Status WatchedExecutor::Release(const MemoryParts& parts, bool rereads) {
  Enter({.number = num_submitted_, .call = ExecutorCall::kRelease});
  Status status = executor_->Release(parts, rereads);
  watch_.Leave();
  return status;
}

Status WatchedExecutor::Restore(const MemoryParts& parts) {
  Enter({.number = num_submitted_, .call = ExecutorCall::kRestore});
  Status status = executor_->Restore(parts);
  watch_.Leave();
  return status;
}

void WatchedExecutor::Enter(const WatchedStep& step) {
  if (watch_.Enter(step)) wake_.Push({});
}

void WatchedExecutor::Watch() {
  SetThreadName("step-watch");
  std::vector<Wake> woken;
  while (!wake_.closed()) {
    const StepWatch::Look look = watch_.LookNow(clock_->Monotonic());
    if (look.overdue) {
      std::ostringstream what;
      what << look.overdue->ToString() << ", not back after " << limit_s_ << " s";
      return on_overdue_(what.str());
    }
    if (look.lasting && on_lasting_) on_lasting_(*look.lasting);
    if (look.again_in_s) {
      wake_.WaitFor(std::chrono::nanoseconds(static_cast<int64_t>(*look.again_in_s * 1e9)));
    } else {
      wake_.Wait();
    }
    wake_.Drain(&woken);
  }
}

}  // namespace tandem
