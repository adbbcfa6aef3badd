#include "frontend/metrics/stats_log.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "common/log.h"
#include "common/own_variable.h"
#include "common/strings.h"
#include "frontend/metrics/format.h"
#include "proto_msgpack/prefix_cache_stats.h"

namespace tandem {

namespace {

std::string EnginePrefix(int engine_index) {
  char text[32];
  std::snprintf(text, sizeof text, "Engine %03d: ", engine_index);
  return text;
}

}  // namespace

StatsLog::StatsLog(const EngineMetrics* metrics, int engine_index, double now)
    : metrics_(metrics),
      engine_(EnginePrefix(engine_index)),
      last_time_(now),
      last_(Read()),
      drafts_(now) {}

void StatsLog::RecordConnector(const wire::RawValue& packed) {
  if (packed.is_nil()) return;
  if (const auto stats = wire::UnpackPrefixCacheStats(packed); stats.ok()) {
    connector_.Record(*stats);
  }
}

void StatsLog::Hits::Record(const wire::PrefixCacheStats& stats) {
  if (stats.requests > 0 || stats.reset) reported_.Push(stats);
}

std::string StatsLog::Hits::Text(std::string_view name) {
  if (reported_.Drain(&drained_)) {
    for (const wire::PrefixCacheStats& stats : drained_) {
      if (stats.reset) window_.Reset();
      window_.Add(stats.requests, stats.queries, stats.hits);
    }
  }
  if (window_.empty()) return "";
  return ", " + std::string(name) + " hit rate: " + Format("%.1f%%", window_.rate() * 100);
}

StatsLog::Totals StatsLog::Read() const {
  return {metrics_->prompt_tokens_by_source[PromptSource::kLocalCompute].Value(),
          metrics_->generation_tokens.Value(), metrics_->num_preemptions.Value(),
          metrics_->corrupted_requests.Value()};
}

std::string StatsLog::Line(double now, bool* busy) {
  const Totals totals = Read();
  const double elapsed = std::max(now - last_time_, 1e-3);
  const double prompt = (totals.prompt_tokens - last_.prompt_tokens) / elapsed;
  const double generation = (totals.generation_tokens - last_.generation_tokens) / elapsed;
  const double preemptions = totals.preemptions - last_.preemptions;
  const double corrupted = totals.corrupted - last_.corrupted;
  last_ = totals;
  last_time_ = now;
  const bool idle = prompt == 0 && generation == 0;
  *busy = !idle || !was_idle_;
  was_idle_ = idle;

  std::string line = engine_;
  line += "Avg prompt throughput: " + Format("%.1f tokens/s, ", prompt);
  line += "Avg generation throughput: " + Format("%.1f tokens/s, ", generation);
  const EngineLoad::View load = metrics_->load.Read();
  line += "Running: " + std::to_string(load.running) + " reqs, ";
  line += "Waiting: " + std::to_string(load.waiting) + " reqs, ";
  if (load.deferred > 0) line += "Deferred: " + std::to_string(load.deferred) + " reqs, ";
  if (preemptions > 0) line += "Preemptions: " + Format("%.0f, ", preemptions);
  line += "KV cache usage: " + Format("%.1f%%", metrics_->kv_cache_usage_perc.Value() * 100);
  line += prefix_.Text("Prefix cache");
  line += connector_.Text("External prefix cache");
  if (corrupted > 0) line += ", Corrupted: " + Format("%.0f reqs", corrupted);
  return line;
}

void StatsLog::Write(double now) {
  bool busy = false;
  const std::string line = Line(now, &busy);
  if (busy) {
    LOG_INFO << line;
  } else {
    LOG_DEBUG << line;
  }
  const std::string drafts = drafts_.Line(now);
  if (!drafts.empty()) LOG_INFO << engine_ << drafts;
}

double StatsLogInterval() {
  constexpr double kDefault = 5;
  const std::optional<OwnVariable> variable = FindOwnVariable("LOG_STATS_INTERVAL");
  if (!variable) return kDefault;
  const std::optional<double> seconds = ParseNumber<double>(variable->value);
  if (seconds && *seconds > 0) return *seconds;
  LOG_WARNING << variable->name << " is '" << variable->value
              << "', must be seconds above 0: " << kDefault << " is used";
  return kDefault;
}

}  // namespace tandem
