#pragma once

// Logs each phase of a process's start with its duration. Thread: main.

#include <cstdio>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/log.h"

namespace tandem {

inline std::string Fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

class StartupLog {
 public:
  explicit StartupLog(const Clock* clock)
      : clock_(clock), started_(clock->Monotonic()), last_(started_) {}
  void Done(std::string_view phase, const std::string& what = "") {
    const double now = clock_->Monotonic();
    LOG_INFO << "[startup] " << phase << " in " << Fixed((now - last_) * 1e3, 1) << " ms"
             << (what.empty() ? "" : ": ") << what;
    last_ = now;
  }
  double total_s() const { return clock_->Monotonic() - started_; }

 private:
  const Clock* clock_;
  const double started_;
  double last_;
};

}  // namespace tandem
