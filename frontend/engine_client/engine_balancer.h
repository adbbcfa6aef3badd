#pragma once

// Chooses the engine for a request by vLLM's load score. Thread: the shard's. Knows counts only;
// several shards share the engines without asking each other, so each scales its own requests up,
// and begins to look at another engine.
// Units: requests; kv_cache_usage is a share of 1.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/status.h"
#include "frontend/engine_client/engine_health.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class EngineBalancer {
 public:
  // client_index: below num_clients.
  EngineBalancer(int num_engines, int num_clients, int client_index = 0);

  // `rank`'s engine when one is given, otherwise the least loaded of those that take requests.
  // num_inflight: this shard's running requests, per engine.
  // num_cached: blocks of the request's prefix that each engine has; empty: nobody knows. Then the
  // engine is one of those that have most, unless its load is above AllowedScore of the least.
  // INVALID_ARGUMENT: no engine has that rank. UNAVAILABLE: the engine, or none, takes requests.
  StatusOr<int> Choose(std::optional<int> rank, const EngineHealth& health,
                       const std::vector<int64_t>& num_inflight,
                       const std::vector<int64_t>& num_cached = {});

  // A request was sent to the engine that Choose chose for `rank`; one that was to go where it was
  // best counts as waiting until the engine's next stats.
  void OnSubmit(int engine_index, std::optional<int> rank);
  void OnStats(int engine_index, const wire::SchedulerStats& stats);
  void OnReady(int engine_index);  // a new process, which has nothing to do yet

 private:
  struct Load {
    double num_waiting = 0;
    double num_running = 0;
    double kv_cache_usage = 0;
  };

  double Score(size_t engine_index, int64_t num_inflight) const;
  static double AllowedScore(double least_score);

  const int num_clients_;
  std::vector<Load> loads_;
  size_t first_scanned_;  // ties go to the first one scanned
};

}  // namespace tandem
