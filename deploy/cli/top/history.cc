#include "deploy/cli/top/history.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem {

void History::Add(MetricsSample sample, double uptime_s) {
  if (uptime_s < uptime_s_) samples_.clear();
  uptime_s_ = uptime_s;
  samples_.push_back(std::move(sample));
  while (samples_.front().time < samples_.back().time - kWindowSeconds) samples_.pop_front();
}

double History::window_s() const {
  return samples_.empty() ? 0 : samples_.back().time - samples_.front().time;
}

double History::Newest(std::string_view name) const {
  return samples_.empty() ? 0 : samples_.back().Sum(name);
}

double History::Rise(std::string_view name) const {
  const double then = samples_.size() < 2 ? 0 : samples_.front().Sum(name);
  return std::max(0.0, Newest(name) - then);
}

std::optional<double> History::Rate(std::string_view name) const {
  if (samples_.size() < 2) return std::nullopt;
  const MetricsSample& now = samples_.back();
  // The newest that is old enough, else the oldest.
  auto from = samples_.begin();
  for (auto each = samples_.begin(); each->time <= now.time - kRateSeconds; ++each) from = each;
  if (now.time <= from->time) return std::nullopt;
  return std::max(0.0, now.Sum(name) - from->Sum(name)) / (now.time - from->time);
}

std::optional<double> History::Quantile(double q, std::string_view histogram) const {
  if (samples_.empty()) return std::nullopt;
  const auto found = samples_.back().buckets.find(histogram);
  if (found == samples_.back().buckets.end()) return std::nullopt;
  const auto before = samples_.front().buckets.find(histogram);
  const bool has_before = samples_.size() > 1 && before != samples_.front().buckets.end();
  const auto rise = [&](double bound, double count) {
    if (!has_before) return count;
    const auto then = before->second.find(bound);
    return then == before->second.end() ? count : count - then->second;
  };
  const double total = rise(found->second.rbegin()->first, found->second.rbegin()->second);
  if (!(total > 0)) return std::nullopt;
  double low = 0, under = 0;
  for (const auto& [bound, count] : found->second) {
    const double until = rise(bound, count);
    if (until >= q * total) {
      if (!std::isfinite(bound) || until <= under) return low;
      return low + (bound - low) * (q * total - under) / (until - under);
    }
    if (std::isfinite(bound)) low = bound;
    under = until;
  }
  return low;
}

std::optional<double> History::Share(std::string_view part, std::string_view whole) const {
  const double all = Rise(whole);
  if (!(all > 0)) return std::nullopt;
  return Rise(part) / all;
}

}  // namespace tandem
