#include "frontend/metrics/offload_metrics.h"

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <array>
#include <span>

#include "common/strings.h"
#include "proto_msgpack/kv_connector_stats.h"
#include "proto_msgpack/offload_series.h"

namespace tandem {
namespace {

namespace offload = wire::offload;
using Kind = wire::ConnectorSeries::Kind;

// Bounds that several share; those of a series that has none are empty.
const Buckets kTransferBytes = {1e6, 5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 100e6, 150e6, 200e6};
const Buckets kSyncSeconds = {1e-5, 5e-5, 1e-4, 5e-4, .001, .005, .01, .05, .1, .5, 1};
const Buckets kAsyncSeconds = {1e-4, 5e-4, .001, .005, .01, .05, .1, .5, 1, 5, 10};
const Buckets kPromotionSeconds = {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60};
const Buckets kChunks = {1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144};
const Buckets kNone = {};

// Which label values follow those of the engine. kFiles: of the tiers after host memory alone.
enum class By { kNothing, kTier, kFiles, kFilesAndResult };

struct Definition {
  std::string_view name;
  Kind kind;
  By by;
  const Buckets& buckets;
  std::string_view help;
};

// clang-format off
const Definition kDefinitions[] = {
    {offload::kLoadBytes, Kind::kCounter, By::kNothing, kNone, "Bytes loaded into the KV cache."},
    {offload::kLoadTime, Kind::kCounter, By::kNothing, kNone, "Seconds that loads into the KV cache took."},
    {offload::kLoadSize, Kind::kHistogram, By::kNothing, kTransferBytes, "Bytes of a load into the KV cache."},
    {offload::kStoreBytes, Kind::kCounter, By::kNothing, kNone, "Bytes stored from the KV cache."},
    {offload::kStoreTime, Kind::kCounter, By::kNothing, kNone, "Seconds that stores from the KV cache took."},
    {offload::kStoreSize, Kind::kHistogram, By::kNothing, kTransferBytes, "Bytes of a store from the KV cache."},
    {offload::kLookupSyncDelay, Kind::kHistogram, By::kNothing, kSyncSeconds, "Duration of a lookup of offloaded blocks."},
    {offload::kLookupAsyncDelay, Kind::kHistogram, By::kNothing, kAsyncSeconds, "From a request's first deferred lookup to the one that was answered, or to its end."},
    {offload::kAllocationFailure, Kind::kCounter, By::kNothing, kNone, "Stores for which host memory had no room."},
    {offload::kStoresSkipped, Kind::kCounter, By::kNothing, kNone, "Stores left out because the threshold of reuse was not reached."},
    {offload::kCpuUsage, Kind::kGauge, By::kNothing, kNone, "Share of host memory that transfers hold, 1 is all."},
    {offload::kCpuWriteUsage, Kind::kGauge, By::kNothing, kNone, "Share of host memory that is being written, 1 is all."},
    {offload::kCpuReadUsage, Kind::kGauge, By::kNothing, kNone, "Share of host memory that is being read, 1 is all."},
    {offload::kCpuAllocationSize, Kind::kHistogram, By::kNothing, kChunks, "Blocks that a store asked host memory for."},
    {offload::kTierLookupSyncDelay, Kind::kHistogram, By::kTier, kSyncSeconds, "Duration of a lookup in a tier."},
    {offload::kTierLookupAsyncDelay, Kind::kHistogram, By::kTier, kAsyncSeconds, "From a request's first deferred lookup in a tier to its answer, or to the request's end."},
    {offload::kTierReadBytes, Kind::kCounter, By::kFiles, kNone, "Bytes read from a tier into host memory."},
    {offload::kTierReadTime, Kind::kCounter, By::kFiles, kNone, "Seconds that reads from a tier took."},
    {offload::kTierWriteBytes, Kind::kCounter, By::kFiles, kNone, "Bytes written from host memory to a tier."},
    {offload::kTierWriteTime, Kind::kCounter, By::kFiles, kNone, "Seconds that writes to a tier took."},
    {offload::kPromotionFailures, Kind::kCounter, By::kFiles, kNone, "Reads from a tier that failed."},
    {offload::kCascadeFailures, Kind::kCounter, By::kFiles, kNone, "Writes to a tier that failed."},
    {offload::kChunkQueries, Kind::kCounter, By::kTier, kNone, "Blocks looked up in a tier."},
    {offload::kChunkHits, Kind::kCounter, By::kTier, kNone, "Blocks found in a tier."},
    {offload::kPromotionAllocationFailures, Kind::kCounter, By::kNothing, kNone, "Times that host memory had no room for what a tier has."},
    {offload::kPrimaryWriteUsage, Kind::kGauge, By::kFiles, kNone, "Share of host memory that is written from a tier, 1 is all."},
    {offload::kPrimaryReadUsage, Kind::kGauge, By::kFiles, kNone, "Share of host memory that is read for a tier, 1 is all."},
    {offload::kActivePromotions, Kind::kGauge, By::kFiles, kNone, "Reads from a tier under way."},
    {offload::kActiveCascades, Kind::kGauge, By::kFiles, kNone, "Writes to a tier under way."},
    {offload::kStoreLatency, Kind::kGauge, By::kFiles, kNone, "Seconds per MiB of the last writes to a tier, as a moving average."},
    {offload::kStoresDropped, Kind::kCounter, By::kFiles, kNone, "Stores of which a tier did not get all blocks, because it is too slow."},
    {offload::kBlocksDropped, Kind::kCounter, By::kFiles, kNone, "Blocks that a tier did not get, because it is too slow."},
    {offload::kPromotionLatency, Kind::kHistogram, By::kFilesAndResult, kPromotionSeconds, "From the request for a read from a tier to its end."},
};
// clang-format on

const Definition* Find(std::string_view name, Kind kind) {
  const auto* found = std::ranges::find(kDefinitions, name, &Definition::name);
  return found != std::end(kDefinitions) && found->kind == kind ? found : nullptr;
}

std::span<const std::string_view> LabelNames(By by) {
  static constexpr std::array<std::string_view, 2> kNames = {"tier", "result"};
  return std::span(kNames).first(by == By::kNothing ? 0 : by == By::kFilesAndResult ? 2 : 1);
}

// Names that these series had before, with the direction of the copy as a label.
struct Older {
  std::string_view of;
  std::string_view name;
  std::string_view transfer_type;
};
constexpr Older kOlder[] = {
    {offload::kLoadBytes, offload::kTotalBytes, "CPU_to_GPU"},
    {offload::kLoadTime, offload::kTotalTime, "CPU_to_GPU"},
    {offload::kLoadSize, offload::kSize, "CPU_to_GPU"},
    {offload::kStoreBytes, offload::kTotalBytes, "GPU_to_CPU"},
    {offload::kStoreTime, offload::kTotalTime, "GPU_to_CPU"},
    {offload::kStoreSize, offload::kSize, "GPU_to_CPU"},
};

void Record(const MetricScope& in, std::string_view name, std::string_view help, Kind kind,
            const Buckets& buckets, std::span<const double> values) {
  if (kind == Kind::kGauge) {
    Gauge gauge(in, name, help);
    if (!values.empty()) gauge.Set(values.front());
    return;
  }
  if (kind == Kind::kHistogram) {
    Histogram histogram(in, name, help, buckets);
    for (const double value : values) histogram.Observe(value);
    return;
  }
  Counter counter(in, std::string(name) + "_total", help);
  if (!values.empty()) counter.Increment(std::max(0.0, values.front()));
}

// Under its name and, if it has one, its older one. No values: it appears at 0.
void Record(const MetricScope& scope, const Definition& series,
            std::span<const std::string> label_values, std::span<const double> values) {
  const std::span<const std::string_view> names = LabelNames(series.by);
  if (names.size() != label_values.size()) return;
  MetricScope in = scope;
  for (size_t i = 0; i < names.size(); ++i) in = in.With(names[i], label_values[i]);
  Record(in, series.name, series.help, series.kind, series.buckets, values);
  const auto* older = std::ranges::find(kOlder, series.name, &Older::of);
  if (older == std::end(kOlder)) return;
  Record(scope.With("transfer_type", older->transfer_type), older->name,
         "DEPRECATED: read the series of loads and of stores instead.", series.kind, series.buckets,
         values);
}

// The label values that a series has in an engine with these tiers.
std::vector<std::vector<std::string>> LabelsOf(By by, std::span<const std::string> tiers) {
  if (by == By::kNothing) return {{}};
  std::vector<std::vector<std::string>> all;
  for (const std::string& tier : tiers) {
    if (by != By::kTier && tier == offload::kPrimaryTier) continue;
    if (by == By::kFilesAndResult) {
      all.push_back({tier, "success"});
      all.push_back({tier, "failure"});
    } else {
      all.push_back({tier});
    }
  }
  return all;
}

constexpr double kZero[] = {0};

// As the library wants them, which throws otherwise.
bool IsLabelName(std::string_view name) {
  return !name.empty() &&
         std::ranges::all_of(name, [](char c) { return c == '_' || (c >= 'a' && c <= 'z'); });
}

}  // namespace

void OffloadMetrics::Show(std::string_view tiers) {
  tiers_ = tiers;
  // Host memory alone is no tier of several.
  const std::vector<std::string_view> words = Split(tiers, ',');
  std::vector<std::string> names;
  if (words.size() > 1) names.assign(words.begin(), words.end());
  for (const Definition& series : kDefinitions) {
    const bool needs_tiers = series.name.starts_with(offload::kTieringPrefix);
    if (needs_tiers && names.empty()) continue;
    for (const auto& labels : LabelsOf(series.by, names)) {
      const bool is_gauge = series.kind == Kind::kGauge;
      tandem::Record(in_, series, labels,
                     is_gauge ? std::span<const double>(kZero) : std::span<const double>());
    }
  }
}

void OffloadMetrics::End() {
  if (!tiers_.empty()) Show(std::string(tiers_));
}

void OffloadMetrics::Record(const wire::RawValue& packed) {
  if (packed.is_nil()) return;
  const StatusOr<wire::KvConnectorStats> stats = wire::UnpackKvConnectorStats(packed);
  if (!stats.ok()) return;
  for (const wire::ConnectorSeries& one : stats->series) {
    const Definition* series = Find(one.name, one.kind);
    if (series != nullptr) tandem::Record(in_, *series, one.labels, one.values);
  }
  ShowInfo(stats->info);
}

void OffloadMetrics::ShowInfo(const std::vector<std::pair<std::string, std::string>>& info) {
  if (info.empty()) return;
  MetricLabels labels = in_.labels;
  for (const auto& [label, value] : info) {
    if (IsLabelName(label)) labels.emplace(label, value);
  }
  auto& family = prometheus::BuildGauge()
                     .Name(std::string(offload::kConfigInfo))
                     .Help("Facts about the memory of offloaded blocks, as labels.")
                     .Register(*in_.registry);
  prometheus::Gauge* const gauge = &family.Add(labels);
  if (info_ != nullptr && info_ != gauge) family.Remove(info_);
  info_ = gauge;
  gauge->Set(1);
}

}  // namespace tandem
