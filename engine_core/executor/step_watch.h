#pragma once

// Distinguishes a step that never returns from a process that was merely stopped. The loop's thread
// notes when it calls the executor and when it is back, with a few stores and no system call; a
// watcher looks now and then. A call is overdue when the watcher has seen it for limit_s of its own
// waiting: no look counts for more than a fraction of the limit, so that time in which the process
// was stopped (by a debugger, by the host) does not count. An overdue call is found between limit_s
// and limit_s * (1 + 1 / kLooksPerLimit) after it began. A look that finds the call of the look
// before says so: what runs it may then be looked at (standstill.h).
// Threads: the engine's loop for Enter and Leave, the watcher for LookNow. Units: seconds. Never
// fails.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

enum class ExecutorCall : int32_t { kSubmit, kCollect, kRelease, kRestore };
// The others last as long as files are large.
constexpr bool RunsStep(ExecutorCall call) {
  return call == ExecutorCall::kSubmit || call == ExecutorCall::kCollect;
}

struct WatchedStep {
  int64_t number = 0;  // the first step of the process is 1
  int32_t num_requests = 0;
  int32_t num_new_requests = 0;  // admitted in this step
  int32_t num_tokens = 0;
  ExecutorCall call = ExecutorCall::kSubmit;

  bool operator==(const WatchedStep&) const = default;
  // "step 12 in Submit: 3 requests (1 of them new), 40 tokens"
  std::string ToString() const;
};

class StepWatch {
 public:
  static constexpr int kLooksPerLimit = 4;

  // limit_s: of calls that run steps; 0: none. pause_s: the longest between two looks; 0: what the
  // limit needs. REQUIRES: one of them is not 0.
  explicit StepWatch(double limit_s, double pause_s = 0) : limit_s_(limit_s), pause_s_(pause_s) {}

  // True when the watcher sleeps and must be woken.
  bool Enter(const WatchedStep& step);
  void Leave();

  struct Look {
    std::optional<double> again_in_s;         // nullopt: when Enter returns true
    std::optional<WatchedStep> lasting = {};  // the look before found this call, too
    std::optional<WatchedStep> overdue = {};
  };
  Look LookNow(double now);

 private:
  double PauseSeconds() const;

  const double limit_s_, pause_s_;
  std::atomic<uint64_t> num_changes_{0};  // odd: inside a call
  std::atomic<bool> watcher_sleeps_{false};
  // The call's step: written before num_changes_ becomes odd.
  std::atomic<int64_t> number_{0};
  std::atomic<int32_t> num_requests_{0}, num_new_requests_{0}, num_tokens_{0};
  std::atomic<ExecutorCall> call_{ExecutorCall::kSubmit};
  // The watcher's.
  uint64_t seen_ = 0;
  double seen_at_ = 0;
  double watched_s_ = 0;
};

}  // namespace tandem
