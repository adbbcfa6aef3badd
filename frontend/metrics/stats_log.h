#pragma once

// The log line about throughput, load and caches, every few seconds:
//   Engine 000: Avg prompt throughput: 12.0 tokens/s, Avg generation throughput: 50.1 tokens/s,
//   Running: 3 reqs, Waiting: 0 reqs, KV cache usage: 4.2%, Prefix cache hit rate: 61.0%
// INFO while requests run and once after; DEBUG when idle. Preemptions and requests with NaN logits
// appear when there were any, the hit rate of a KV connector ("External prefix cache hit rate")
// where there is one. Where drafts were verified, a second line (draft_log.h).
// Thread: RecordPrefix, RecordConnector and RecordDrafts from any shard; the rest from the shard
// that writes the line.

#include <cstdint>
#include <string>
#include <string_view>
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

  void RecordPrefix(const wire::PrefixCacheStats& stats) { prefix_.Record(stats); }
  // SchedulerStats::connector_prefix_cache_stats; nil: there is no connector.
  void RecordConnector(const wire::RawValue& packed);
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
  // The hits of one cache, reported by any shard.
  class Hits {
   public:
    void Record(const wire::PrefixCacheStats& stats);
    // ", <name> hit rate: 12.3%"; empty: it was not asked yet.
    std::string Text(std::string_view name);

   private:
    HitRateWindow window_;
    Mailbox<wire::PrefixCacheStats> reported_;
    std::vector<wire::PrefixCacheStats> drained_;
  };
  Totals Read() const;

  const EngineMetrics* metrics_;
  const std::string engine_;
  double last_time_;
  Totals last_;
  bool was_idle_ = true;
  Hits prefix_;
  Hits connector_;
  DraftLog drafts_;
};

// Seconds between two lines: TANDEM_LOG_STATS_INTERVAL, else VLLM_LOG_STATS_INTERVAL, else 5.
double StatsLogInterval();

}  // namespace tandem
