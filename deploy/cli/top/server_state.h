#pragma once

// What one look at a server finds: the body of /dashboard/state and the series of /metrics. The
// server may be of another version, or no Tandem at all: what is missing or of another type is 0 or
// empty. Values; any thread. Failure: UNAVAILABLE with what the server should have sent.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

struct EngineState {
  int64_t index = 0;
  bool ready = false;
  std::string status;
  int64_t running = 0, waiting = 0;
  double kv_cache_usage = 0;  // 0 to 1
  int64_t kv_blocks = 0, block_size = 0, max_model_len = 0, max_num_seqs = 0;
  int64_t restarts = 0, resident_bytes = 0;
};

struct RequestState {
  std::string id, phase;
  int64_t choices = 1;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0, max_output_tokens = 0;
  int64_t preemptions = 0;
  double age_s = 0;
  std::optional<double> ttft_s;
};

struct DashboardState {
  std::string version, model;
  double uptime_s = 0;
  bool is_draining = false;
  std::vector<EngineState> engines;
  std::vector<RequestState> requests;  // the oldest
  int64_t num_requests = 0;            // of all
};

StatusOr<DashboardState> ParseDashboardState(std::string_view json);

// Sums over the label sets of each name. Of a histogram: cumulative counts by upper bound.
struct MetricsSample {
  double time = 0;  // seconds of a monotonic clock
  std::map<std::string, double, std::less<>> sums;
  std::map<std::string, std::map<double, double>, std::less<>> buckets;

  double Sum(std::string_view name) const;  // 0: there is no such series
};

// Lines that are no series are left out.
MetricsSample ParseMetrics(std::string_view text, double time);

}  // namespace tandem
