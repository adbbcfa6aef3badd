#pragma once

// Chooses the engine for a request by vLLM's load score. Thread: the shard's. Knows counts only;
// several shards share the engines without asking each other, so each scales its own requests up,
// and begins to look at another engine.
// Units: requests; kv_cache_usage is a share of 1.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/status.h"
#include "frontend/engine_client/engine_health.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// What an engine is for: the first ones compute prompts for the others, or all run whole requests.
enum class EngineRole { kDecode, kPrefill };

class EngineBalancer {
 public:
  // client_index: below num_clients. num_prefill_engines: below num_engines.
  EngineBalancer(int num_engines, int num_clients, int client_index = 0,
                 int num_prefill_engines = 0);

  // What is to be run, and what is known about where.
  struct Wish {
    std::optional<int> rank = {};  // this engine's, whatever its role
    EngineRole role = EngineRole::kDecode;
    std::function<bool(int)> admits = {};  // engines that may get it; empty: all
    // Blocks of the request's prefix that each engine has; empty: nobody knows.
    std::vector<int64_t> num_cached = {};
  };
  // `rank`'s engine when one is given, otherwise the least loaded of those of the role that take
  // requests; of those that have most of the prefix, unless its load is above AllowedScore of the
  // least. num_inflight: this shard's running requests, per engine.
  // INVALID_ARGUMENT: no engine has that rank. UNAVAILABLE: the engine, or none, takes requests.
  StatusOr<int> Choose(const Wish& wish, const EngineHealth& health,
                       const std::vector<int64_t>& num_inflight);
  bool is_prefill_engine(int engine_index) const {
    return static_cast<size_t>(engine_index) < group(EngineRole::kPrefill).end;
  }

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

  // The engines of one role: [begin, end).
  struct Group {
    size_t begin = 0, end = 0;
    size_t first_scanned = 0;  // from begin on; ties go to the first one scanned
  };
  struct Candidate {
    size_t index = 0;
    double score = 0;
  };

  const Group& group(EngineRole role) const { return groups_[static_cast<size_t>(role)]; }
  // Those that take requests, in the order of the scan.
  std::vector<Candidate> Scan(const Wish& wish, const EngineHealth& health,
                              const std::vector<int64_t>& num_inflight);
  double Score(size_t engine_index, int64_t num_inflight) const;
  static double AllowedScore(double least_score);

  const int num_clients_;
  std::vector<Load> loads_;
  std::array<Group, 2> groups_;  // by role
};

}  // namespace tandem
