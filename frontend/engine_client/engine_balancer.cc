#include "frontend/engine_client/engine_balancer.h"

#include <algorithm>
#include <limits>
#include <string>

namespace tandem {

EngineBalancer::EngineBalancer(int num_engines, int num_clients, int client_index)
    : num_clients_(num_clients),
      loads_(static_cast<size_t>(num_engines)),
      first_scanned_(static_cast<size_t>(num_engines * client_index / num_clients)) {}

StatusOr<int> EngineBalancer::Choose(std::optional<int> rank, const EngineHealth& health,
                                     const std::vector<int64_t>& num_inflight,
                                     const std::vector<int64_t>& num_cached) {
  if (rank) {
    if (*rank < 0 || static_cast<size_t>(*rank) >= loads_.size()) {
      return InvalidArgumentError("data_parallel_rank is " + std::to_string(*rank) +
                                  ", there are " + std::to_string(loads_.size()) + " engines");
    }
    RETURN_IF_ERROR(health.CheckTakesRequests(*rank));
    return *rank;
  }
  struct Candidate {
    size_t index = 0;
    double score = 0;
  };
  std::vector<Candidate> candidates;  // in the order of the scan
  double least_score = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < loads_.size(); ++i) {
    const size_t index = (first_scanned_ + i) % loads_.size();
    if (!health.CheckTakesRequests(static_cast<int>(index)).ok()) continue;
    candidates.push_back({index, Score(index, num_inflight[index])});
    least_score = std::min(least_score, candidates.back().score);
  }
  first_scanned_ = (first_scanned_ + 1) % loads_.size();
  if (candidates.empty()) return health.CheckTakesRequests(0);
  const double allowed = num_cached.empty() ? least_score : AllowedScore(least_score);
  const Candidate* best = nullptr;
  for (const Candidate& each : candidates) {
    if (each.score > allowed) continue;
    const int64_t lead = best == nullptr || num_cached.empty()
                             ? 0
                             : num_cached[each.index] - num_cached[best->index];
    if (best == nullptr || lead > 0 || (lead == 0 && each.score < best->score)) best = &each;
  }
  return static_cast<int>(best->index);
}

// Four requests more, or half as many again: few enough to be gone soon.
double EngineBalancer::AllowedScore(double least_score) {
  return least_score + std::max(4.0, least_score / 2);
}

// The requests that are known to be there, and a penalty for waiting for a cache more than half
// full.
double EngineBalancer::Score(size_t engine_index, int64_t num_inflight) const {
  const Load& load = loads_[engine_index];
  const double own = static_cast<double>(num_clients_) * static_cast<double>(num_inflight);
  return std::max(own, load.num_waiting + load.num_running) +
         load.num_waiting * 6 * std::max(0.0, load.kv_cache_usage - 0.5);
}

void EngineBalancer::OnSubmit(int engine_index, std::optional<int> rank) {
  if (!rank) loads_[static_cast<size_t>(engine_index)].num_waiting += num_clients_;
}

void EngineBalancer::OnStats(int engine_index, const wire::SchedulerStats& stats) {
  loads_[static_cast<size_t>(engine_index)] = {
      .num_waiting = static_cast<double>(stats.num_waiting_reqs + stats.num_skipped_waiting_reqs),
      .num_running = static_cast<double>(stats.num_running_reqs),
      .kv_cache_usage = stats.kv_cache_usage};
}

void EngineBalancer::OnReady(int engine_index) { loads_[static_cast<size_t>(engine_index)] = {}; }

}  // namespace tandem
