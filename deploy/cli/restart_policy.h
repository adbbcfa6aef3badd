#pragma once

// When a process that died is started again. Values only; the supervisor's thread.
// - One that was ready in between is started as often as it dies, after 0, 1, 2, 4, ... s, at most
//   kMaxDelay: streams outlive their engine, so giving up would be the greater harm. A minute
//   without a death begins anew.
// - One that does not become ready any more has kMaxFailedStarts, then it is given up.
// Units: seconds of any one monotonic clock.

#include <cstddef>
#include <deque>
#include <optional>

namespace tandem {

class RestartPolicy {
 public:
  static constexpr double kWindow = 60;
  static constexpr double kMaxDelay = 16;
  static constexpr int kMaxFailedStarts = 6;

  // How long to wait before the next start; nullopt: it is given up.
  std::optional<double> OnDeath(double now, bool was_ready);
  int num_failed_starts() const { return num_failed_starts_; }

 private:
  std::deque<double> deaths_;  // within the window
  int num_failed_starts_ = 0;  // in a row
};

}  // namespace tandem
