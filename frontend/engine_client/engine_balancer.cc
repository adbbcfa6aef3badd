#include "frontend/engine_client/engine_balancer.h"

#include <algorithm>
#include <limits>
#include <string>

namespace tandem {

EngineBalancer::EngineBalancer(int num_engines, int num_clients, int client_index,
                               int num_prefill_engines)
    : num_clients_(num_clients), loads_(static_cast<size_t>(num_engines)) {
  const auto first = [&](int size) {
    return static_cast<size_t>(size * client_index / num_clients);
  };
  const auto num_prefill = static_cast<size_t>(num_prefill_engines);
  groups_[static_cast<size_t>(EngineRole::kPrefill)] = {0, num_prefill, first(num_prefill_engines)};
  groups_[static_cast<size_t>(EngineRole::kDecode)] = {num_prefill, loads_.size(),
                                                       first(num_engines - num_prefill_engines)};
}

StatusOr<int> EngineBalancer::Choose(const Wish& wish, const EngineHealth& health,
                                     const std::vector<int64_t>& num_inflight) {
  if (wish.rank) {
    if (*wish.rank < 0 || static_cast<size_t>(*wish.rank) >= loads_.size()) {
      return InvalidArgumentError("data_parallel_rank is " + std::to_string(*wish.rank) +
                                  ", there are " + std::to_string(loads_.size()) + " engines");
    }
    RETURN_IF_ERROR(health.CheckTakesRequests(*wish.rank));
    return *wish.rank;
  }
  const std::vector<Candidate> candidates = Scan(wish, health, num_inflight);
  if (candidates.empty()) {
    const Status why = health.CheckTakesRequests(static_cast<int>(group(wish.role).begin));
    return why.ok() ? UnavailableError("no other engine takes requests") : why;
  }
  double least_score = std::numeric_limits<double>::infinity();
  for (const Candidate& each : candidates) least_score = std::min(least_score, each.score);
  const double allowed = wish.num_cached.empty() ? least_score : AllowedScore(least_score);
  const Candidate* best = nullptr;
  for (const Candidate& each : candidates) {
    if (each.score > allowed) continue;
    const int64_t lead = best == nullptr || wish.num_cached.empty()
                             ? 0
                             : wish.num_cached[each.index] - wish.num_cached[best->index];
    if (best == nullptr || lead > 0 || (lead == 0 && each.score < best->score)) best = &each;
  }
  return static_cast<int>(best->index);
}

std::vector<EngineBalancer::Candidate> EngineBalancer::Scan(
    const Wish& wish, const EngineHealth& health, const std::vector<int64_t>& num_inflight) {
  Group& group = groups_[static_cast<size_t>(wish.role)];
  const size_t size = group.end - group.begin;
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < size; ++i) {
    const size_t index = group.begin + (group.first_scanned + i) % size;
    const auto engine_index = static_cast<int>(index);
    const bool is_admitted = !wish.admits || wish.admits(engine_index);
    if (!is_admitted || !health.CheckTakesRequests(engine_index).ok()) continue;
    candidates.push_back({index, Score(index, num_inflight[index])});
  }
  if (size > 0) group.first_scanned = (group.first_scanned + 1) % size;
  return candidates;
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
