#pragma once

// Samples of the last minute: rates and percentiles are differences between the newest one and one
// before it, as Prometheus computes them. A server that was started again begins anew. Values; one
// thread. Seconds.

#include <deque>
#include <optional>
#include <string_view>

#include "deploy/cli/top/server_state.h"

namespace tandem {

class History {
 public:
  static constexpr double kWindowSeconds = 60;  // of percentiles and shares
  static constexpr double kRateSeconds = 5;     // of rates

  // uptime_s: the server's; less than before means another server.
  void Add(MetricsSample sample, double uptime_s);

  bool empty() const { return samples_.empty(); }
  // How far back percentiles look; 0: to the server's start.
  double window_s() const;
  double Newest(std::string_view name) const;
  // Per second; nullopt: one sample has no rate.
  std::optional<double> Rate(std::string_view name) const;
  // Of the window. Linear within a bucket; nullopt: nothing was observed.
  std::optional<double> Quantile(double q, std::string_view histogram) const;
  std::optional<double> Share(std::string_view part, std::string_view whole) const;

 private:
  double Rise(std::string_view name) const;

  std::deque<MetricsSample> samples_;  // the oldest first
  double uptime_s_ = 0;
};

}  // namespace tandem
