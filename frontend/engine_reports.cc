#include "frontend/engine_reports.h"

#include <optional>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "common/sd_notify.h"
#include "common/strings.h"
#include "frontend/engine_client/engine_client.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/msgpack_reader.h"
#include "proto_msgpack/offload_series.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {

EngineReports::EngineReports(Metrics* metrics, Shard* first_shard, double now,
                             std::function<bool()> is_handing_over)
    : metrics_(metrics),
      first_shard_(first_shard),
      is_handing_over_(std::move(is_handing_over)),
      newest_(static_cast<size_t>(metrics->num_engines())),
      models_(newest_.size()),
      is_ready_(newest_.size()),
      was_ready_(is_ready_.size()) {
  for (int i = 0; i < metrics->num_engines(); ++i) {
    kv_fetch_.emplace_back(metrics->engine(i).in);
    logs_.push_back(std::make_unique<StatsLog>(&metrics->engine(i), metrics->RankOf(i), now));
  }
}

void EngineReports::RecordStats(int engine_index, const wire::SchedulerStats& stats,
                                double engine_time, StepTokens* step_tokens) {
  step_tokens->End();
  StatsLog& log = *logs_[static_cast<size_t>(engine_index)];
  log.RecordPrefix(stats.prefix_cache_stats);
  log.RecordConnector(stats.connector_prefix_cache_stats);
  if (stats.spec_decoding_stats) log.RecordDrafts(*stats.spec_decoding_stats);
  if (first_shard_->OnThread()) return RecordInOrder(engine_index, stats, engine_time);
  first_shard_->Post([this, engine_index, report = stats, engine_time]() mutable {
    RecordInOrder(engine_index, std::move(report), engine_time);
  });
}

void EngineReports::RecordInOrder(int engine_index, wire::SchedulerStats stats,
                                  double engine_time) {
  newest_[static_cast<size_t>(engine_index)].Apply(engine_time, &stats);
  Record(engine_index, stats);
}

void EngineReports::Record(int engine_index, const wire::SchedulerStats& stats) {
  metrics_->Record(engine_index, stats);
  kv_fetch_[static_cast<size_t>(engine_index)].Record(stats.num_kv_fetch_reqs_by_stage);
  metrics_->adapter_info().Record(engine_index, stats, SystemClock().Unix());
}

void EngineReports::RecordHealth(EngineClient& client) {
  for (int i = 0; i < client.num_engines(); ++i) RecordEngine(i, client);
  const Status health = client.health();
  if (health.ok() == was_serving_) return;
  was_serving_ = health.ok();
  if (!health.ok()) {
    (void)SdNotify("STATUS=" + health.message());
    return;
  }
  LOG_INFO << "Application startup complete.";
  (void)SdNotify("READY=1\nSTATUS=serving");
}

void EngineReports::RecordEngine(int engine_index, EngineClient& client) {
  const auto i = static_cast<size_t>(engine_index);
  const Status status = client.engine_status(engine_index);
  if (status.ok() && !is_ready_[i] && was_ready_[i]) {
    LOG_INFO << "engine " << engine_index << " is back";
    metrics_->engine(engine_index).engine_restarts.Increment();
  }
  if (!status.ok()) {
    if (is_ready_[i]) LOG_ERROR << status.message();
    // An engine that is gone runs nothing: its last numbers must not stay.
    newest_[i].End();
    Record(engine_index, wire::SchedulerStats{});
    metrics_->offload(engine_index).End();
  } else if (!is_ready_[i]) {
    newest_[i].Begin();
    RecordFacts(engine_index, client);
    SendToSleep(engine_index, client);
  }
  is_ready_[i] = status.ok();
  was_ready_[i] = was_ready_[i] || status.ok();
}

void EngineReports::RecordTakeOver(EngineClient& client, int engine_index) {
  metrics_->engine(engine_index).engine_swaps.Increment();
  newest_[static_cast<size_t>(engine_index)].Begin();
  metrics_->sleep_levels().OnTakeOver(engine_index);
  RecordFacts(engine_index, client);
}

void EngineReports::SendToSleep(int engine_index, EngineClient& client) {
  const std::optional<int64_t> level = metrics_->sleep_levels().Wanted(engine_index);
  if (!level || is_handing_over_()) return;
  client.CallUtility(engine_index, "sleep",
                     wire::PackedArray({wire::PackedInt(*level), wire::PackedString("keep")}),
                     [metrics = metrics_, engine_index, level = *level](const auto& reply) {
                       const StatusCode code = reply.status().code();
                       if (code == StatusCode::kUnavailable) return;  // it died as well
                       if (code != StatusCode::kOk) {
                         LOG_WARNING << "engine " << engine_index
                                     << " stays awake, unlike the one before it: "
                                     << reply.status().message();
                         return;
                       }
                       metrics->sleep_levels().OnReport(engine_index, level);
                       LOG_INFO << "engine " << engine_index << " sleeps at level " << level
                                << ", as the one before it did";
                     });
}

namespace {

// The reply of wire::kCacheFactsMethod, put over what READY has.
void AddFacts(const wire::RawValue& packed, MetricLabels* facts) {
  wire::MsgpackReader reader(packed.packed);
  const uint32_t num_words = reader.ArraySize();
  for (uint32_t i = 0; i + 1 < num_words && reader.status().ok(); i += 2) {
    std::string name(reader.String());
    std::string value(reader.String());
    if (reader.status().ok()) (*facts)[std::move(name)] = std::move(value);
  }
}

}  // namespace

void EngineReports::RecordFacts(int engine_index, EngineClient& client) {
  const wire::EngineCoreReadyResponse& info = client.engine_info(engine_index);
  EngineMetrics& metrics = metrics_->engine(engine_index);
  metrics_->sleep_levels().OnReport(engine_index, std::nullopt);
  metrics.max_num_seqs.Set(info.max_num_seqs);
  metrics.max_num_batched_tokens.Set(info.max_num_batched_tokens);
  metrics_->SetMaxModelLen(info.max_model_len);
  MetricLabels facts = {{"block_size", std::to_string(info.block_size)},
                        {"num_gpu_blocks", std::to_string(info.num_gpu_blocks)}};
  if (info.kv_cache_size_tokens) {
    facts["kv_cache_size_tokens"] = std::to_string(*info.kv_cache_size_tokens);
  }
  metrics_->SetCacheConfig(engine_index, facts);
  if (info.peer() != wire::Peer::kTandem) return;
  // Engines of other programs do not report which adapters have requests.
  metrics_->adapter_info().SetMaxLoras(engine_index, info.supports_lora ? info.max_loras : 0,
                                       SystemClock().Unix());
  client.CallUtility(engine_index, wire::kCacheFactsMethod, {},
                     [this, metrics = metrics_, engine_index, facts](const auto& reply) mutable {
                       if (!reply.ok()) return;
                       AddFacts(*reply, &facts);
                       // How many drafts it verifies, if any: not a fact of the cache.
                       const auto drafts = facts.extract("tandem_num_speculative_tokens");
                       if (!drafts.empty()) {
                         const auto count = ParseNumber<int64_t>(drafts.mapped());
                         metrics->ShowDrafts(engine_index, count.value_or(0));
                       }
                       if (!facts.extract("tandem_loads_kv").empty()) {
                         kv_fetch_[static_cast<size_t>(engine_index)].Show();
                       }
                       const auto tiers = facts.extract(std::string(wire::offload::kTiersFact));
                       if (!tiers.empty()) metrics->offload(engine_index).Show(tiers.mapped());
                       auto model = facts.extract("tandem_model");
                       if (!model.empty()) CompareModels(engine_index, std::move(model.mapped()));
                       // It may sleep already where the frontend is the new one.
                       const auto level = facts.extract("tandem_sleep_level");
                       if (!level.empty()) {
                         metrics->sleep_levels().OnReport(engine_index,
                                                          ParseNumber<int64_t>(level.mapped()));
                       }
                       metrics->SetCacheConfig(engine_index, facts);
                     });
}

// While a swap replaces engines one after another, they differ as well.
void EngineReports::CompareModels(int engine_index, std::string fingerprint) {
  models_[static_cast<size_t>(engine_index)] = std::move(fingerprint);
  const std::string& own = models_[static_cast<size_t>(engine_index)];
  for (size_t other = 0; other < models_.size(); ++other) {
    if (!is_ready_[other] || models_[other].empty() || models_[other] == own) continue;
    LOG_WARNING << "engine " << engine_index << " and engine " << other
                << " have different models, or compute in different types: what a request gets "
                   "depends on its engine";
    return;
  }
}

Awaitable<void> EngineReports::WriteLines() {
  const double interval = StatsLogInterval();
  double next = SystemClock().Monotonic();
  while (true) {
    next += interval;
    co_await SleepUntil(next);
    for (const auto& log : logs_) log->Write(SystemClock().Monotonic());
  }
}

}  // namespace tandem
