#include "engine_core/watchdog.h"

#include <chrono>
#include <cstdlib>
#include <vector>

#include "common/mailbox.h"
#include "common/thread_clock.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Work that takes some CPU time, as a long step does.
void Compute(double seconds) {
  const ThreadClock clock;
  const double end = clock.Seconds() + seconds;
  while (clock.Seconds() < end) {
  }
}

TEST_CASE("watchdog: a loop lives while it turns, rests or computes") {
  LoopPulse pulse;
  Compute(0.002);  // the first look compares with the thread's start
  (void)pulse.Lives();
  CHECK_FALSE(pulse.Lives());  // nothing at all: a lock that nobody opens
  pulse.Turn();
  CHECK(pulse.Lives());
  CHECK_FALSE(pulse.Lives());
  pulse.BeginRest();
  for (int i = 0; i < 3; ++i) CHECK(pulse.Lives());
  pulse.EndRest();
  CHECK(pulse.Lives());  // it was woken
  CHECK_FALSE(pulse.Lives());
  Compute(0.002);  // one step without an end in sight
  CHECK(pulse.Lives());
  CHECK_FALSE(pulse.Lives());
}

TEST_CASE("watchdog: a loop that gives no sign of life is reported before its process is killed") {
  setenv("WATCHDOG_USEC", "40000", 1);
  LoopPulse pulse;
  Mailbox<int> reports;
  {
    const LoopWatchdog watchdog(&pulse, [&reports] { reports.Push(1); });
    REQUIRE(reports.WaitFor(std::chrono::seconds(20)));
  }
  pulse.BeginRest();
  std::vector<int> taken;
  reports.Drain(&taken);
  {
    const LoopWatchdog watchdog(&pulse, [&reports] { reports.Push(1); });
    CHECK_FALSE(reports.WaitFor(std::chrono::milliseconds(100)));
  }
  unsetenv("WATCHDOG_USEC");
}

}  // namespace
}  // namespace tandem
