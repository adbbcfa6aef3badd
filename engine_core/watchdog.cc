#include "engine_core/watchdog.h"

#include <chrono>
#include <optional>
#include <utility>

#include "common/log.h"
#include "common/sd_notify.h"

namespace tandem {
namespace {

// More than a thread uses that was woken by mistake and sleeps again.
constexpr double kComputingSeconds = 1e-3;
constexpr int kBeatsPerLimit = 4;

}  // namespace

bool LoopPulse::Lives() {
  const int64_t state = state_.load(std::memory_order_relaxed);
  const double cpu_s = clock_.Seconds();
  const bool rests = state % kTurn == kResting;
  const bool lives = rests || state != seen_ || cpu_s - seen_cpu_s_ >= kComputingSeconds;
  seen_ = state;
  seen_cpu_s_ = cpu_s;
  return lives;
}

LoopWatchdog::LoopWatchdog(LoopPulse* pulse, std::function<void()> on_silent)
    : pulse_(pulse), on_silent_(std::move(on_silent)) {
  const std::optional<double> limit_s = WatchdogSeconds();
  if (limit_s) thread_ = std::thread([this, limit_s] { Run(*limit_s); });
}

LoopWatchdog::~LoopWatchdog() {
  wake_.Close();
  if (thread_.joinable()) thread_.join();
}

void LoopWatchdog::Run(double limit_s) {
  SetThreadName("watchdog");
  const auto pause = std::chrono::nanoseconds(static_cast<int64_t>(limit_s / kBeatsPerLimit * 1e9));
  int num_silent = 0;
  do {
    if (pulse_->Lives()) {
      num_silent = 0;
      SendBeat();
    } else if (++num_silent == kBeatsPerLimit / 2 && on_silent_) {
      on_silent_();
    }
    wake_.WaitFor(pause);
  } while (!wake_.closed());
}

}  // namespace tandem
