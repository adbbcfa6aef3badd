#pragma once

// The series of one engine's OffloadingConnector (vllm:kv_offload_*). They exist once the engine
// is known to have one. Names: proto_msgpack/offload_series.h; what the engine reports under others
// is left out. Thread: first shard.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/metrics/instruments.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class OffloadMetrics {
 public:
  explicit OffloadMetrics(MetricScope scope) : in_(std::move(scope)) {}

  // The engine, which has just started, has these tiers (wire::offload::kTiersFact): their series
  // appear at 0, gauges go back to it.
  void Show(std::string_view tiers);
  // SchedulerStats::kv_connector_stats. Malformed ones are left out.
  void Record(const wire::RawValue& packed);
  // The engine is gone, and with it its transfers.
  void End();

 private:
  void ShowInfo(const std::vector<std::pair<std::string, std::string>>& info);

  MetricScope in_;
  std::string tiers_;                  // that are shown
  prometheus::Gauge* info_ = nullptr;  // vllm:kv_offload_config_info
};

}  // namespace tandem
