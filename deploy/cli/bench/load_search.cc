#include "deploy/cli/bench/load_search.h"

#include <algorithm>
#include <cmath>

namespace tandem {

std::optional<double> LoadSearch::Next() const {
  if (trials_.empty()) return rules_.min;
  const Trial* highest_within = nullptr;
  const Trial* lowest_beyond = nullptr;
  double best_below = 0;  // throughput of the loads under highest_within
  for (const Trial& trial : trials_) {
    if (trial.within_limits && (highest_within == nullptr || trial.load > highest_within->load)) {
      highest_within = &trial;
    }
    if (!trial.within_limits && (lowest_beyond == nullptr || trial.load < lowest_beyond->load)) {
      lowest_beyond = &trial;
    }
  }
  if (highest_within == nullptr) return std::nullopt;  // not even the least load
  const double low = highest_within->load;
  if (lowest_beyond == nullptr) {
    for (const Trial& trial : trials_) {
      if (trial.load < low) best_below = std::max(best_below, trial.throughput);
    }
    const bool gained = highest_within->throughput > best_below * (1 + rules_.gain);
    if (low >= rules_.max || !gained) return std::nullopt;
    return std::min(2 * low, rules_.max);
  }
  const double high = lowest_beyond->load;
  if (high <= low * (1 + rules_.tolerance) || (rules_.whole && high - low <= 1)) {
    return std::nullopt;
  }
  return rules_.whole ? std::floor((low + high) / 2) : std::sqrt(low * high);
}

const LoadSearch::Trial* LoadSearch::best() const {
  const Trial* best = nullptr;
  for (const Trial& trial : trials_) {
    if (!trial.within_limits) continue;
    if (best == nullptr || trial.throughput > best->throughput ||
        (trial.throughput == best->throughput && trial.load < best->load)) {
      best = &trial;
    }
  }
  return best;
}

}  // namespace tandem
