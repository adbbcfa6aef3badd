#include "deploy/cli/restart_policy.h"

#include <algorithm>
#include <cmath>

namespace tandem {

std::optional<double> RestartPolicy::OnDeath(double now, bool was_ready) {
  while (!deaths_.empty() && deaths_.front() < now - kWindow) deaths_.pop_front();
  const double delay =
      deaths_.empty() ? 0 : std::min(kMaxDelay, std::exp2(static_cast<double>(deaths_.size()) - 1));
  deaths_.push_back(now);
  num_failed_starts_ = was_ready ? 0 : num_failed_starts_ + 1;
  if (num_failed_starts_ >= kMaxFailedStarts) return std::nullopt;
  return delay;
}

}  // namespace tandem
