#include "frontend/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "common/check.h"
#include "common/process_stats.h"
#include "common/strings.h"
#include "frontend/metrics/exposition.h"
#include "frontend/metrics/hidden_metrics.h"
#include "proto_msgpack/prefix_cache_stats.h"

namespace tandem {

namespace {

Buckets HttpLatencyBuckets() { return {0.1, 0.5, 1}; }
Buckets HttpFineLatencyBuckets() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1,  1.5, 2,
          2.5,  3,     3.5,  4,     4.5, 5,    7.5, 10,   30, 60};
}

prometheus::MetricFamily Single(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  family.metric.resize(1);
  family.metric[0].counter.value = value;
  family.metric[0].gauge.value = value;
  return family;
}

// The process's own series, as Prometheus clients name them.
void AppendProcessFamilies(std::vector<prometheus::MetricFamily>* families) {
  const std::optional<ProcessStats> stats = ReadProcessStats();
  if (!stats) return;
  using prometheus::MetricType;
  const auto append = [families](const char* name, const char* help, MetricType type, auto value) {
    families->push_back(Single(name, help, type, static_cast<double>(value)));
  };
  append("process_virtual_memory_bytes", "Virtual memory size in bytes.", MetricType::Gauge,
         stats->virtual_bytes);
  append("process_resident_memory_bytes", "Resident memory size in bytes.", MetricType::Gauge,
         stats->resident_bytes);
  append("process_start_time_seconds", "Unix time the process started at.", MetricType::Gauge,
         stats->started_at);
  append("process_cpu_seconds_total", "User and system CPU time in seconds.", MetricType::Counter,
         stats->cpu_s);
  append("process_open_fds", "Open file descriptors.", MetricType::Gauge, stats->open_files);
  append("process_max_fds", "Most file descriptors that may be open.", MetricType::Gauge,
         stats->max_files);
}

// A summary without quantiles: a count and a sum for each handler. The library's own summaries keep
// windows of samples for quantiles that are not shown.
class SizeSummary {
 public:
  SizeSummary(const char* name, const char* help, prometheus::Registry* registry)
      : name_(name),
        help_(help),
        count_(prometheus::BuildCounter().Name(name_ + "_count").Register(*registry)),
        sum_(prometheus::BuildCounter().Name(name_ + "_sum").Register(*registry)) {}

  bool Owns(const std::string& series) const {
    return series == count_.GetName() || series == sum_.GetName();
  }

  void Observe(const std::string& handler, double bytes) {
    count_.Add({{"handler", handler}}).Increment();
    sum_.Add({{"handler", handler}}).Increment(bytes);
  }

  void AppendTo(std::vector<prometheus::MetricFamily>* families) const {
    std::map<std::string, prometheus::ClientMetric> by_handler;
    for (const auto& family : count_.Collect()) {
      for (const auto& metric : family.metric) {
        auto& summary = by_handler[metric.label[0].value];
        summary.label = metric.label;
        summary.summary.sample_count = static_cast<uint64_t>(metric.counter.value);
      }
    }
    for (const auto& family : sum_.Collect()) {
      for (const auto& metric : family.metric) {
        const auto it = by_handler.find(metric.label[0].value);
        if (it != by_handler.end()) it->second.summary.sample_sum = metric.counter.value;
      }
    }
    prometheus::MetricFamily family;
    family.name = name_;
    family.help = help_;
    family.type = prometheus::MetricType::Summary;
    for (auto& [handler, metric] : by_handler) family.metric.push_back(std::move(metric));
    families->push_back(std::move(family));
  }

 private:
  const std::string name_;
  const std::string help_;
  prometheus::Family<prometheus::Counter>& count_;
  prometheus::Family<prometheus::Counter>& sum_;
};

}  // namespace

// A child appears with the first request that has its labels, as in other servers.
struct Metrics::HttpFamilies {
  prometheus::Family<prometheus::Counter>& requests;
  prometheus::Family<prometheus::Histogram>& fine_duration;
  prometheus::Family<prometheus::Histogram>& duration;
  prometheus::Registry sizes{};  // not shown as it is
  SizeSummary request_size{"http_request_size_bytes", "Content-Length of requests.", &sizes};
  SizeSummary response_size{"http_response_size_bytes",
                            "Content-Length of responses, 0 for streams.", &sizes};
};

struct Metrics::HandedOver {
  std::string text_page, open_metrics_page;
  Counts counts;  // all, up to the last call
};

Metrics::Metrics(MetricsOptions options)
    : options_(std::move(options)),
      max_model_len_(options_.max_model_len),
      registry_(std::make_unique<prometheus::Registry>()),
      hit_rates_(static_cast<size_t>(options_.num_engines)) {
  for (int i = 0; i < options_.num_engines; ++i) {
    const MetricScope scope{
        registry_.get(),
        {{"engine", std::to_string(RankOf(i))}, {"model_name", options_.model_name}}};
    engines_.push_back(std::make_unique<EngineMetrics>(scope, options_.buckets));
    offload_.emplace_back(scope);
    if (options_.kv_cache_metrics) {
      residency_.push_back(std::make_unique<KvResidencyMetrics>(scope, options_.buckets));
    }
  }
  std::vector<EngineMetrics*> engines;
  for (const auto& engine : engines_) engines.push_back(engine.get());
  sleep_levels_ = std::make_unique<SleepLevels>(engines);
  frontend_ = std::make_unique<FrontendMetrics>(
      MetricScope{registry_.get(), {{"model_name", options_.model_name}}});
  const MetricScope without_labels{registry_.get(), {}};
  if (options_.dev_mode) dev_ = std::make_unique<DevMetrics>(without_labels);
  web_sockets_ = std::make_unique<WebSocketMetrics>(without_labels);
  adapter_info_ = std::make_unique<AdapterInfo>(registry_.get(), options_.num_engines);
  http_ = std::unique_ptr<HttpFamilies>(
      new HttpFamilies{prometheus::BuildCounter()
                           .Name("http_requests_total")
                           .Help("Requests by handler, method and status class.")
                           .Register(*registry_),
                       prometheus::BuildHistogram()
                           .Name("http_request_duration_highr_seconds")
                           .Help("Request duration over all handlers, fine bounds.")
                           .Register(*registry_),
                       prometheus::BuildHistogram()
                           .Name("http_request_duration_seconds")
                           .Help("Request duration by handler and method.")
                           .Register(*registry_)});
  http_->fine_duration.Add({}, HttpFineLatencyBuckets());
}

Metrics::~Metrics() = default;

std::string Metrics::Scrape(MetricsFormat format) const {
  if (!is_handed_over_) {
    std::string page = MakePage(format);
    // One that was made while another thread handed over may have numbers that are not handed over.
    if (!is_handed_over_) return page;
  }
  return format == MetricsFormat::kText ? handed_over_->text_page : handed_over_->open_metrics_page;
}

std::string Metrics::MakePage(MetricsFormat format) const {
  for (const auto& engine : engines_) engine->ShowLoad();
  auto families = registry_->Collect();
  if (!options_.show_deprecated) {
    std::erase_if(families,
                  [](const auto& family) { return family.help.starts_with("DEPRECATED"); });
  }
  if (options_.show_hidden) AppendHiddenMetrics(&families);
  if (!options_.show_model_series) {
    std::erase_if(families, [](const auto& family) {
      return family.name.starts_with("vllm:") || family.name.starts_with("tandem:");
    });
  }
  TrimTokenBounds(&families);
  http_->request_size.AppendTo(&families);
  http_->response_size.AppendTo(&families);
  AppendProcessFamilies(&families);
  if (format == MetricsFormat::kText) return Exposition(families);
  return OpenMetricsExposition(families, [this](const auto& family, const auto& metric) {
    const auto is_engine = [](const auto& label) { return label.name == "engine"; };
    const auto label = std::ranges::find_if(metric.label, is_engine);
    return label == metric.label.end() ? nullptr : ExemplarsOf(family.name, label->value);
  });
}

namespace {

// Counted by each frontend that the engine serves.
bool IsOfEngine(const std::string& name) {
  return name == "tandem:engine_restarts_total" || name == "tandem:engine_swaps_total" ||
         name == "tandem:engine_process_cpu_seconds_total";
}

// EngineMetrics::process_cpu_before; shown nowhere.
constexpr std::string_view kProcessCpuBefore = "tandem:engine_process_cpu_seconds_before";

std::pair<std::string, MetricLabels> ProcessCpuBefore(const EngineMetrics& engine) {
  return {std::string(kProcessCpuBefore), engine.in.labels};
}

}  // namespace

std::string Metrics::HandOverCounts() {
  const bool is_first = handed_over_ == nullptr;
  if (is_first) {
    handed_over_ = std::make_unique<HandedOver>(HandedOver{
        MakePage(MetricsFormat::kText), MakePage(MetricsFormat::kOpenMetrics), Counts()});
    is_handed_over_ = true;
  }
  Counts now = ReadCounts(*registry_);
  now.merge(ReadCounts(http_->sizes));
  Counts since = CountsSince(handed_over_->counts, now);
  handed_over_->counts = std::move(now);
  if (is_first) {
    for (const auto& engine : engines_) {
      since[ProcessCpuBefore(*engine)].sum = engine->process_cpu_before;
    }
  } else {
    std::erase_if(since, [](const auto& series) { return IsOfEngine(series.first.first); });
  }
  return since.empty() ? "" : CountsToText(since);
}

bool Metrics::IsOfThisServer(const MetricLabels& labels) const {
  const auto model = labels.find("model_name");
  if (model != labels.end() && model->second != options_.model_name) return false;
  const auto engine = labels.find("engine");
  if (engine == labels.end()) return true;
  const auto rank = ParseNumber<int>(engine->second);
  return rank && *rank >= RankOf(0) && *rank < RankOf(num_engines());
}

Status Metrics::AddCounts(std::string_view handed_over) {
  if (handed_over.empty()) return OkStatus();
  ASSIGN_OR_RETURN(Counts counts, CountsFromText(handed_over));
  std::erase_if(counts,
                [this](const auto& series) { return !IsOfThisServer(series.first.second); });
  for (const auto& engine : engines_) {
    const auto before = counts.extract(ProcessCpuBefore(*engine));
    if (!before.empty()) engine->process_cpu_before = before.mapped().sum;
  }
  Counts sizes;
  for (auto it = counts.begin(); it != counts.end();) {
    const auto series = it++;
    const std::string& name = series->first.first;
    const bool is_size = http_->request_size.Owns(name) || http_->response_size.Owns(name);
    if (is_size) sizes.insert(counts.extract(series));
  }
  tandem::AddCounts(counts, registry_.get());
  tandem::AddCounts(sizes, &http_->sizes);
  return OkStatus();
}

const Exemplars* Metrics::ExemplarsOf(const std::string& family, const std::string& engine) const {
  const int index = ParseNumber<int>(engine).value_or(-1) - RankOf(0);
  if (index < 0 || index >= num_engines()) return nullptr;
  for (const Histogram* histogram : engines_[static_cast<size_t>(index)]->traced_histograms()) {
    if (histogram->name() == family) return &histogram->exemplars();
  }
  return nullptr;
}

// Done here and not when the length becomes known: a histogram cannot be replaced while shards
// observe into it. Buckets are cumulative, so leaving one out loses no count.
void Metrics::TrimTokenBounds(std::vector<prometheus::MetricFamily>* families) const {
  if (options_.buckets.has_own_request_tokens()) return;
  const auto longest = static_cast<double>(max_model_len_.load());
  const auto is_too_long = [longest](const prometheus::ClientMetric::Bucket& bucket) {
    return bucket.upper_bound > longest && std::isfinite(bucket.upper_bound);
  };
  std::set<std::string_view> names;
  for (const Histogram* histogram : engines_.front()->token_histograms()) {
    names.insert(histogram->name());
  }
  for (prometheus::MetricFamily& family : *families) {
    if (!names.contains(family.name)) continue;
    for (prometheus::ClientMetric& metric : family.metric) {
      std::erase_if(metric.histogram.bucket, is_too_long);
    }
  }
}

namespace {

constexpr size_t kMostDraftPositions = 128;

// The series appear when an engine that speculates is known: without speculation there are none.
void RecordDrafts(const wire::SpecDecodingStats& stats, const MetricScope& in) {
  const auto add = [](Counter counter, int64_t count) {
    if (count > 0) counter.Increment(static_cast<double>(count));
  };
  add({in, "vllm:spec_decode_num_drafts_total", "Times a request's drafts were verified."},
      stats.num_drafts);
  add({in, "vllm:spec_decode_num_draft_tokens_total", "Drafts verified."}, stats.num_draft_tokens);
  add({in, "vllm:spec_decode_num_accepted_tokens_total", "Drafts accepted."},
      stats.num_accepted_tokens);
  const std::vector<int64_t>& counts = stats.num_accepted_tokens_per_pos;
  for (size_t i = 0; i < std::min(counts.size(), kMostDraftPositions); ++i) {
    add({in.With("position", std::to_string(i)),
         "vllm:spec_decode_num_accepted_tokens_per_pos_total", "Drafts accepted, by position."},
        counts[i]);
  }
}

}  // namespace

void Metrics::ShowDrafts(int engine_index, int64_t num_positions) {
  wire::SpecDecodingStats none;
  none.num_accepted_tokens_per_pos.resize(
      std::min(static_cast<size_t>(std::max<int64_t>(0, num_positions)), kMostDraftPositions));
  RecordDrafts(none, engine(engine_index).in);
}

void EngineMetrics::ShowLoad() {
  const EngineLoad::View now = load.Read();
  num_requests_running.Set(static_cast<double>(now.running));
  num_requests_waiting.Set(static_cast<double>(now.waiting));
  num_requests_waiting_by_reason[WaitingReason::kCapacity].Set(
      static_cast<double>(now.waiting - now.deferred));
  num_requests_waiting_by_reason[WaitingReason::kDeferred].Set(static_cast<double>(now.deferred));
}

namespace {

using HitsByPlace = std::array<int64_t, kCacheSources.size()>;

// Hits that the engine attributes to no place that is known here are of none, and so are all that
// do not add up.
HitsByPlace HitsByPlaceOf(const wire::PrefixCacheStats& stats) {
  constexpr auto kNone = static_cast<size_t>(CacheSource::kExternalUnspecified);
  HitsByPlace hits = {};
  int64_t num_left = stats.hits;
  for (const auto& [source, num_tokens] : stats.hits_by_source) {
    const auto found = std::ranges::find(kCacheSources, source);
    const auto place = static_cast<size_t>(found - kCacheSources.begin());
    hits[std::min(place, kNone)] += num_tokens;
    num_left -= num_tokens;
  }
  if (num_left == 0) return hits;
  hits = {};
  hits[kNone] = stats.hits;
  return hits;
}

// What a KV connector was asked for and could load. Nil: the engine has none.
void RecordConnector(const wire::RawValue& packed, EngineMetrics* metrics) {
  if (packed.is_nil()) return;
  const StatusOr<wire::PrefixCacheStats> stats = wire::UnpackPrefixCacheStats(packed);
  if (!stats.ok()) return;
  metrics->external_prefix_cache_queries.Increment(static_cast<double>(stats->queries));
  metrics->external_prefix_cache_hits.Increment(static_cast<double>(stats->hits));
  const HitsByPlace hits = HitsByPlaceOf(*stats);
  for (size_t i = 0; i < hits.size(); ++i) {
    if (hits[i] == 0) continue;
    metrics->prompt_tokens_cached_by_source[static_cast<CacheSource>(i)].Increment(
        static_cast<double>(hits[i]));
  }
}

}  // namespace

void Metrics::Record(int engine_index, const wire::SchedulerStats& stats) {
  EngineMetrics& metrics = engine(engine_index);
  metrics.load.Report(stats.num_running_reqs, stats.num_waiting_reqs,
                      stats.num_skipped_waiting_reqs);
  metrics.kv_cache_usage_perc.Set(stats.kv_cache_usage);
  const wire::PrefixCacheStats& prefix = stats.prefix_cache_stats;
  if (prefix.queries > 0) {
    metrics.prefix_cache_queries.Increment(static_cast<double>(prefix.queries));
  }
  if (prefix.hits > 0) {
    const auto hits = static_cast<double>(prefix.hits);
    metrics.prefix_cache_hits.Increment(hits);
    metrics.prompt_tokens_cached_by_source[CacheSource::kDevice].Increment(hits);
  }
  RecordConnector(stats.connector_prefix_cache_stats, &metrics);
  offload(engine_index).Record(stats.kv_connector_stats);
  HitRateWindow& hit_rate = hit_rates_[static_cast<size_t>(engine_index)];
  if (prefix.reset) hit_rate.Reset();
  hit_rate.Add(prefix.requests, prefix.queries, prefix.hits);
  metrics.gpu_prefix_cache_hit_rate.Set(hit_rate.rate());
  RecordEvictions(engine_index, stats.kv_cache_eviction_events);
  if (stats.spec_decoding_stats) RecordDrafts(*stats.spec_decoding_stats, metrics.in);
}

void Metrics::RecordProcess(int engine_index, const ProcessStats& stats,
                            const std::map<std::string, double>& startup_s) {
  EngineMetrics& metrics = engine(engine_index);
  for (const auto& [phase, seconds] : startup_s) {
    Gauge(metrics.in.With("phase", phase), "tandem:engine_startup_seconds",
          "Duration of each phase of the engine's start.")
        .Set(seconds);
  }
  metrics.process_resident_memory_bytes.Set(static_cast<double>(stats.resident_bytes));
  metrics.process_virtual_memory_bytes.Set(static_cast<double>(stats.virtual_bytes));
  metrics.process_start_time_seconds.Set(stats.started_at);
  metrics.process_open_fds.Set(static_cast<double>(stats.open_files));
  // Counts on where another process has taken its place.
  const double counted = metrics.process_cpu_seconds.Value();
  const double before = metrics.process_cpu_before;
  if (stats.cpu_s + before < counted) metrics.process_cpu_before = counted;
  metrics.process_cpu_seconds.Increment(
      std::max(0.0, metrics.process_cpu_before + stats.cpu_s - counted));
}

void Metrics::RecordEvictions(int engine_index,
                              const std::vector<wire::KvCacheEvictionEvent>& evictions) {
  if (residency_.empty()) return;
  KvResidencyMetrics& metrics = *residency_[static_cast<size_t>(engine_index)];
  for (const wire::KvCacheEvictionEvent& eviction : evictions) {
    metrics.kv_block_lifetime.Observe(eviction.lifetime_seconds);
    metrics.kv_block_idle_before_evict.Observe(eviction.idle_seconds);
    for (const double gap : eviction.reuse_gaps_seconds) metrics.kv_block_reuse_gap.Observe(gap);
  }
}

DevMetrics& Metrics::dev() {
  CHECK(dev_ != nullptr);
  return *dev_;
}

namespace {

// A client may send any word as a method; that must not create a series for each.
std::string KnownMethod(std::string_view method) {
  for (const char* known : {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}) {
    if (method == known) return known;
  }
  return "other";
}

}  // namespace

void Metrics::Record(const HttpSample& sample) {
  const std::string handler(sample.handler), method = KnownMethod(sample.method);
  const std::string status_class = std::to_string(sample.status / 100) + "xx";
  http_->requests.Add({{"handler", handler}, {"method", method}, {"status", status_class}})
      .Increment();
  http_->request_size.Observe(handler, sample.request_bytes);
  http_->response_size.Observe(handler, sample.response_bytes);
  http_->fine_duration.Add({}, HttpFineLatencyBuckets()).Observe(sample.duration_s);
  http_->duration.Add({{"handler", handler}, {"method", method}}, HttpLatencyBuckets())
      .Observe(sample.duration_s);
}

void Metrics::SetCacheConfig(int engine_index, const MetricLabels& labels) {
  MetricLabels all = labels;
  all["engine"] = std::to_string(RankOf(engine_index));
  auto& family = prometheus::BuildGauge()
                     .Name("vllm:cache_config_info")
                     .Help("Facts about the KV cache, as labels.")
                     .Register(*registry_);
  cache_config_.resize(engines_.size());
  prometheus::Gauge*& shown = cache_config_[static_cast<size_t>(engine_index)];
  prometheus::Gauge* const gauge = &family.Add(all);
  if (shown != nullptr && shown != gauge) family.Remove(shown);
  shown = gauge;
  gauge->Set(1);
}

}  // namespace tandem
