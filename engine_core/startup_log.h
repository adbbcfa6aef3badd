#pragma once

// Logs and keeps each phase of a process's start with its duration, and asks systemd for time for
// the next one. Thread: main.

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/log.h"
#include "common/sd_notify.h"

namespace tandem {

inline std::string Fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

struct StartupPhase {
  std::string name;
  double seconds = 0;
};

class StartupLog {
 public:
  explicit StartupLog(const Clock* clock)
      : clock_(clock), started_(clock->Monotonic()), last_(started_) {}
  void Done(std::string_view phase, const std::string& what = "") {
    const double now = clock_->Monotonic();
    LOG_INFO << "[startup] " << phase << " in " << Fixed((now - last_) * 1e3, 1) << " ms"
             << (what.empty() ? "" : ": ") << what;
    phases_.push_back({std::string(phase), now - last_});
    last_ = now;
    AskForStartTime();
  }
  const std::vector<StartupPhase>& phases() const { return phases_; }
  double total_s() const { return clock_->Monotonic() - started_; }

 private:
  const Clock* clock_;
  const double started_;
  double last_;
  std::vector<StartupPhase> phases_;
};

}  // namespace tandem
