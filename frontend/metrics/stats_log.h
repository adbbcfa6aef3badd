#pragma once

// The log line about throughput, load and caches, every few seconds:
//   Engine 000: Avg prompt throughput: 12.0 tokens/s, Avg generation throughput: 50.1 tokens/s,
//   Running: 3 reqs, Waiting: 0 reqs, KV cache usage: 4.2%, Prefix cache hit rate: 61.0%
// INFO while requests run and once after; DEBUG when idle. Preemptions and requests with NaN logits
// appear when there were any. Where drafts were verified, a second line (draft_log.h).
// Thread: RecordPrefix and RecordDrafts from any shard; the rest from the shard that
// writes the line.

#include <cstdint>
#include <string>
#include <vector>

#include "common/mailbox.h"
#include "frontend/metrics/draft_log.h"
#include "frontend/metrics/hit_rate_window.h"
#include "frontend/metrics/metrics.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class StatsLog {
 public:
  // `now`: any monotonic clock; intervals are measured with it.
  StatsLog(const EngineMetrics* metrics, int engine_index, double now);

  void RecordPrefix(const wire::PrefixCacheStats& stats);
  void RecordDrafts(const wire::SpecDecodingStats& stats) { drafts_.Record(stats); }
  // Writes the line for the time since the last one.
  void Write(double now);
  // The text that Write logs, and whether its level is INFO. Starts the next window.
  std::string Line(double now, bool* busy);

 private:
  struct Totals {
    double prompt_tokens = 0;
    double generation_tokens = 0;
    double preemptions = 0;
    double corrupted = 0;
  };
  Totals Read() const;

  const EngineMetrics* metrics_;
  const std::string prefix_;
  double last_time_;
  Totals last_;
  bool was_idle_ = true;
  HitRateWindow hit_rate_;
  Mailbox<wire::PrefixCacheStats> prefix_stats_;
  std::vector<wire::PrefixCacheStats> drained_;
  DraftLog drafts_;
};

// Seconds between two lines: TANDEM_LOG_STATS_INTERVAL, else VLLM_LOG_STATS_INTERVAL, else 5.
double StatsLogInterval();

}  // namespace tandem
