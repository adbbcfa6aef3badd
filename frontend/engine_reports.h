#pragma once

// What the engines report, as metrics, as the statistics line of the log and as systemd's status.
// Thread: the shard noted at each function. Borrows the metrics.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "frontend/metrics/kv_fetch_stages.h"
#include "frontend/metrics/metrics.h"
#include "frontend/metrics/newest_state.h"
#include "frontend/metrics/request_stats.h"
#include "frontend/metrics/stats_log.h"
#include "frontend/net/net.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class EngineClient;

class EngineReports {
 public:
  // now: monotonic, where the first interval of the statistics line begins. is_handing_over: to
  // another frontend process, which gives orders to engines from then on.
  EngineReports(Metrics* metrics, Shard* first_shard, double now,
                std::function<bool()> is_handing_over);
  EngineReports(const EngineReports&) = delete;

  // An engine's stats of one step, which ended at engine_time. step_tokens: of the shard that
  // received them, which calls this.
  void RecordStats(int engine_index, const wire::SchedulerStats& stats, double engine_time,
                   StepTokens* step_tokens);
  // An engine came or went. First shard.
  void RecordHealth(EngineClient& client);
  // An engine took over from another. First shard.
  void RecordTakeOver(EngineClient& client, int engine_index);
  // Writes the statistics line of each engine every few seconds; never ends. First shard.
  Awaitable<void> WriteLines();

 private:
  void RecordInOrder(int engine_index, wire::SchedulerStats stats, double engine_time);
  void Record(int engine_index, const wire::SchedulerStats& stats);
  void RecordEngine(int engine_index, EngineClient& client);
  // What the engine reported as it became ready, and what it replies when it is asked for more.
  void RecordFacts(int engine_index, EngineClient& client);
  void CompareModels(int engine_index, std::string fingerprint);
  // An engine that comes after a death sleeps as the one before it did.
  void SendToSleep(int engine_index, EngineClient& client);

  Metrics* const metrics_;
  Shard* const first_shard_;
  const std::function<bool()> is_handing_over_;
  std::vector<std::unique_ptr<StatsLog>> logs_;  // one per engine
  // First shard.
  std::vector<NewestState> newest_;      // each engine
  std::vector<KvFetchStages> kv_fetch_;  // each engine
  std::vector<std::string> models_;      // each engine's fingerprint; empty: not known
  std::vector<bool> is_ready_;           // each engine
  std::vector<bool> was_ready_;          // ever
  bool was_serving_ = false;
};

}  // namespace tandem
