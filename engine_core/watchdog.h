#pragma once

// Reports to the process that watches us (systemd, `tandem serve`) that the engine's loop lives.
// The loop lives while it waits for events, goes on from turn to turn, or computes: a step may take
// minutes on a CPU, but it uses the loop's thread, or a rank does for which that waits. A loop that
// does none of these hangs, and no beat is sent any more; a process that is stopped sends none
// either. A step that computes for ever has a limit of its own (watched_executor.h).

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "common/mailbox.h"
#include "common/thread_clock.h"

namespace tandem {

// Thread: constructed on the loop's; Turn any, Rest on the loop's; Lives on the watchdog's.
class LoopPulse {
 public:
  void Turn() { Add(kTurn); }
  void BeginRest() { Add(kResting); }  // waits for events
  void EndRest() { Add(-kResting); }

  // Whether there was a sign of life since the last call.
  bool Lives();

 private:
  static constexpr int64_t kResting = 1, kTurn = 2;
  void Add(int64_t change) { state_.fetch_add(change, std::memory_order_relaxed); }

  const ThreadClock clock_;
  std::atomic<int64_t> state_{0};
  // The watchdog's.
  int64_t seen_ = 0;
  double seen_cpu_s_ = 0;
};

class LoopWatchdog {
 public:
  // Without a limit, which nobody asked for, it does nothing. on_silent: called on the watchdog's
  // thread after half of the limit without a sign of life. The pulse outlives it.
  explicit LoopWatchdog(LoopPulse* pulse, std::function<void()> on_silent = {});
  ~LoopWatchdog();
  LoopWatchdog(const LoopWatchdog&) = delete;

 private:
  enum class Wake {};
  void Run(double limit_s);

  LoopPulse* const pulse_;
  const std::function<void()> on_silent_;
  Mailbox<Wake> wake_;  // closed: the thread ends
  std::thread thread_;
};

}  // namespace tandem
