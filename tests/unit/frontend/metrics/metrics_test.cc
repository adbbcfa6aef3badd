#include "frontend/metrics/metrics.h"
#include "frontend/metrics/kv_fetch_stages.h"

#include <prometheus/metric_family.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <limits>
#include <set>
#include <string_view>
#include <thread>

#include "exposition_parser.h"
#include "frontend/metrics/exposition.h"
#include "frontend/metrics/hidden_metrics.h"
#include "frontend/metrics/request_stats.h"
#include "frontend/metrics/stats_log.h"
#include "proto_msgpack/kv_connector_stats.h"
#include "proto_msgpack/offload_series.h"
#include "proto_msgpack/prefix_cache_stats.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

Metrics MakeMetrics(int num_engines = 1, int64_t max_model_len = 4096) {
  return Metrics({.model_name = "m", .num_engines = num_engines, .max_model_len = max_model_len});
}

ExpositionParser Scrape(const Metrics& metrics) {
  ExpositionParser parser;
  const std::string problem = parser.Parse(metrics.Scrape());
  INFO(problem);
  REQUIRE(problem.empty());
  return parser;
}

const std::map<std::string, std::string> kEngine0 = {{"engine", "0"}, {"model_name", "m"}};

// name → type of each series that must exist at 0 before the first request.
const std::map<std::string, std::string> kExpected = {
    {"tandem:trace_spans_total", "counter"},
    {"vllm:num_requests_running", "gauge"},
    {"vllm:num_requests_waiting", "gauge"},
    {"vllm:num_requests_waiting_by_reason", "gauge"},
    {"vllm:kv_cache_usage_perc", "gauge"},
    {"vllm:gpu_cache_usage_perc", "gauge"},
    {"vllm:engine_sleep_state", "gauge"},
    {"vllm:gpu_prefix_cache_hit_rate", "gauge"},
    {"tandem:max_num_seqs", "gauge"},
    {"tandem:max_num_batched_tokens", "gauge"},
    {"tandem:engine_process_resident_memory_bytes", "gauge"},
    {"tandem:engine_process_cpu_seconds_total", "counter"},
    {"tandem:queued_requests", "gauge"},
    {"tandem:queued_prompt_tokens", "gauge"},
    {"tandem:text_pool_waiting_jobs", "gauge"},
    {"tandem:text_pool_wait_seconds_total", "counter"},
    {"vllm:prefix_cache_queries_total", "counter"},
    {"vllm:prefix_cache_hits_total", "counter"},
    {"vllm:gpu_prefix_cache_queries_total", "counter"},
    {"vllm:gpu_prefix_cache_hits_total", "counter"},
    {"vllm:external_prefix_cache_queries_total", "counter"},
    {"vllm:external_prefix_cache_hits_total", "counter"},
    {"vllm:num_preemptions_total", "counter"},
    {"vllm:prompt_tokens_total", "counter"},
    {"vllm:prompt_tokens_by_source_total", "counter"},
    {"vllm:prompt_tokens_cached_total", "counter"},
    {"vllm:prompt_tokens_cached_by_source_total", "counter"},
    {"vllm:generation_tokens_total", "counter"},
    {"vllm:request_success_total", "counter"},
    {"vllm:admission_rejections_total", "counter"},
    {"vllm:tool_call_parser_invocations_total", "counter"},
    {"vllm:iteration_tokens_total", "histogram"},
    {"vllm:time_to_first_token_seconds", "histogram"},
    {"vllm:inter_token_latency_seconds", "histogram"},
    {"vllm:time_per_output_token_seconds", "histogram"},
    {"vllm:request_time_per_output_token_seconds", "histogram"},
    {"vllm:e2e_request_latency_seconds", "histogram"},
    {"vllm:request_queue_time_seconds", "histogram"},
    {"vllm:request_prefill_time_seconds", "histogram"},
    {"vllm:request_decode_time_seconds", "histogram"},
    {"vllm:request_inference_time_seconds", "histogram"},
    {"vllm:request_prompt_tokens", "histogram"},
    {"vllm:request_generation_tokens", "histogram"},
    {"vllm:request_max_num_generation_tokens", "histogram"},
    {"vllm:request_params_n", "histogram"},
    {"vllm:request_params_max_tokens", "histogram"},
    {"vllm:request_prefill_kv_computed_tokens", "histogram"},
    {"vllm:request_num_preemptions", "histogram"},
    {"tandem:engine_restarts_total", "counter"},
    {"tandem:engine_swaps_total", "counter"},
    {"tandem:requests_resumed_total", "counter"},
    {"tandem:stored_responses", "gauge"},
    {"tandem:stored_response_bytes", "gauge"},
    {"tandem:requests_moved_total", "counter"},
    {"vllm:mm_cache_queries_total", "counter"},
    {"vllm:mm_cache_hits_total", "counter"},
    {"vllm:corrupted_requests_total", "counter"},
    {"tandem:requests_expired_total", "counter"},
    {"vllm:websocket_connections_active", "gauge"},
    {"vllm:websocket_connections_total", "counter"},
    {"vllm:websocket_connection_duration_seconds", "histogram"},
};

const std::set<std::string_view> kOfTheFrontend = {
    "vllm:admission_rejections_total", "vllm:tool_call_parser_invocations_total",
    "tandem:requests_resumed_total",   "tandem:stored_responses",
    "tandem:stored_response_bytes",    "tandem:requests_moved_total",
    "tandem:queued_requests",          "tandem:queued_prompt_tokens",
    "tandem:text_pool_waiting_jobs",   "tandem:text_pool_wait_seconds_total",
    "tandem:trace_spans_total",        "tandem:requests_expired_total",
};
const std::set<std::string_view> kWithoutLabels = {"vllm:websocket_connections_active",
                                                   "vllm:websocket_connections_total",
                                                   "vllm:websocket_connection_duration_seconds"};

TEST_CASE("every series exists at 0 before the first request, with its type and labels") {
  const Metrics metrics = MakeMetrics();
  const ExpositionParser page = Scrape(metrics);
  for (const auto& [name, type] : kExpected) {
    CAPTURE(name);
    REQUIRE(page.families().count(name) == 1);
    const ParsedFamily& family = page.families().at(name);
    CHECK(family.type == type);
    CHECK_FALSE(family.help.empty());
    REQUIRE_FALSE(family.samples.empty());
    for (const ParsedSample& sample : family.samples) {
      const bool awake =
          name == "vllm:engine_sleep_state" && sample.labels.back().second == "awake";
      CHECK(sample.value == (awake ? 1 : 0));
      if (kWithoutLabels.contains(name)) {
        CHECK(std::ranges::all_of(sample.labels,
                                  [](const auto& label) { return label.first == "le"; }));
        continue;
      }
      const bool has_engine =
          sample.labels[0] == std::pair<std::string, std::string>("engine", "0");
      CHECK(has_engine == !kOfTheFrontend.contains(name));
    }
  }
  for (const std::string_view reason : kFinishedReasons) {
    CHECK(page.Value("vllm:request_success_total", {{"finished_reason", std::string(reason)}}) ==
          0);
  }
  CHECK(page.families().at("vllm:tool_call_parser_invocations_total").samples.size() == 12);
  for (const char* old : {"vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds"}) {
    CHECK(page.families().at(old).help.rfind("DEPRECATED", 0) == 0);
  }
}

TEST_CASE("routes of developers have their series from the first scrape") {
  CHECK(Scrape(MakeMetrics()).families().count("vllm:sleep_mode_operations_in_flight") == 0);
  Metrics metrics({.model_name = "m", .dev_mode = true});
  const ExpositionParser page = Scrape(metrics);
  const std::map<std::string, std::vector<std::string>> operations = {
      {"vllm:sleep_mode_operation", {"sleep", "release_kv_cache_memory", "wake"}},
      {"vllm:rl_weight_update_operation",
       {"init", "shutdown", "start", "start_draft", "update", "finish"}}};
  for (const auto& [prefix, names] : operations) {
    CAPTURE(prefix);
    CHECK(page.families().at(prefix + "s_in_flight").samples.size() == names.size());
    for (const std::string& name : names) {
      CAPTURE(name);
      CHECK(page.Value(prefix + "s_in_flight", {{"operation", name}}) == 0);
      CHECK(page.Value(prefix + "_duration_seconds_count", {{"operation", name}}) == 0);
    }
  }
  metrics.dev().sleep_calls_in_flight[SleepCall::kWake].Add(1);
  metrics.dev().sleep_call_duration[SleepCall::kReleaseKvCache].Observe(2);
  const ExpositionParser later = Scrape(metrics);
  CHECK(later.Value("vllm:sleep_mode_operations_in_flight", {{"operation", "wake"}}) == 1);
  CHECK(later.Value("vllm:sleep_mode_operation_duration_seconds_sum",
                    {{"operation", "release_kv_cache_memory"}}) == 2);
  CHECK(later.Value("vllm:sleep_mode_operation_duration_seconds_bucket",
                    {{"operation", "release_kv_cache_memory"}, {"le", "1.0"}}) == 0);
}

TEST_CASE("a label distinguishes engines within one family") {
  const Metrics metrics = MakeMetrics(3);
  const ExpositionParser page = Scrape(metrics);
  for (const char* engine : {"0", "1", "2"}) {
    CHECK(page.Value("vllm:num_requests_running", {{"engine", engine}}) == 0);
  }
}

TEST_CASE("histogram buckets are cumulative, in order, and end with +Inf") {
  Metrics metrics = MakeMetrics();
  Histogram& ttft = metrics.engine(0).time_to_first_token;
  for (const double value : {0.0005, 0.001, 0.5, 1.0, 1e9}) ttft.Observe(value);
  const ExpositionParser page = Scrape(metrics);
  const auto& samples = page.families().at("vllm:time_to_first_token_seconds").samples;
  double last_bound = -1, last_count = -1;
  std::vector<std::string> bounds;
  for (const ParsedSample& sample : samples) {
    if (!sample.name.ends_with("_bucket")) continue;
    REQUIRE(sample.labels[1].first == "le");
    bounds.push_back(sample.labels[1].second);
    const double bound = std::strtod(bounds.back().c_str(), nullptr);
    CHECK(bound > last_bound);
    CHECK(sample.value >= last_count);
    last_bound = bound;
    last_count = sample.value;
  }
  CHECK(bounds.size() == TimeToFirstTokenBuckets().size() + 1);
  CHECK(bounds.front() == "0.001");
  CHECK(bounds[11] == "1.0");
  CHECK(bounds.back() == "+Inf");
  CHECK(last_count == 5);
  const auto bucket = [&page](const char* le) {
    return page.Value("vllm:time_to_first_token_seconds_bucket", {{"le", le}});
  };
  CHECK(bucket("0.001") == 2);  // a bound belongs to its bucket
  CHECK(bucket("0.75") == 3);
  CHECK(bucket("1.0") == 4);
  CHECK(page.Value("vllm:time_to_first_token_seconds_count") == 5);
}

TEST_CASE("numbers have Python's form") {
  CHECK(MetricNumber(0) == "0.0");
  CHECK(MetricNumber(1) == "1.0");
  CHECK(MetricNumber(-2.5) == "-2.5");
  CHECK(MetricNumber(0.1) == "0.1");
  CHECK(MetricNumber(0.0001) == "0.0001");
  CHECK(MetricNumber(0.00001) == "1e-05");
  CHECK(MetricNumber(16384) == "16384.0");
  CHECK(MetricNumber(999999) == "999999.0");
  CHECK(MetricNumber(1e6) == "1e+06");
  CHECK(MetricNumber(1234567) == "1.234567e+06");
  CHECK(MetricNumber(std::numeric_limits<double>::infinity()) == "+Inf");
  CHECK(MetricNumber(std::nan("")) == "NaN");
}

TEST_CASE("label values and help texts are escaped") {
  prometheus::MetricFamily family;
  family.name = "x";
  family.help = "a\nb\\c";
  family.type = prometheus::MetricType::Gauge;
  family.metric.resize(1);
  family.metric[0].label = {{"l", "q\"b\\n\n"}};
  CHECK(Exposition({family}) ==
        "# HELP x a\\nb\\\\c\n# TYPE x gauge\nx{l=\"q\\\"b\\\\n\\n\"} 0.0\n");
}

TEST_CASE("bounds of token histograms reach up to the model's length") {
  CHECK(RequestTokensBuckets(5) == Buckets{1, 2, 5});
  CHECK(RequestTokensBuckets(9) == Buckets{1, 2, 5});
  CHECK(RequestTokensBuckets(4096).back() == 2000);
  CHECK(RequestTokensBuckets(131072).back() == 100000);
  Metrics metrics = MakeMetrics(1, 100);
  CHECK(std::isnan(Scrape(metrics).Value("vllm:request_prompt_tokens_bucket", {{"le", "1000.0"}})));
  metrics.SetMaxModelLen(4096);
  CHECK(Scrape(metrics).Value("vllm:request_prompt_tokens_bucket", {{"le", "1000.0"}}) == 0);
  CHECK(std::isnan(Scrape(metrics).Value("vllm:request_prompt_tokens_bucket", {{"le", "5000.0"}})));
}

TEST_CASE("no request is lost when an engine returns with another length") {
  Metrics metrics = MakeMetrics(2, 4096);
  metrics.engine(1).request_prompt_tokens.Observe(3);
  metrics.engine(1).request_prompt_tokens.Observe(300);
  metrics.SetMaxModelLen(100);
  const ExpositionParser page = Scrape(metrics);
  const auto bucket = [&page](const char* le) {
    return page.Value("vllm:request_prompt_tokens_bucket", {{"engine", "1"}, {"le", le}});
  };
  CHECK(bucket("2.0") == 0);
  CHECK(bucket("100.0") == 1);
  CHECK(std::isnan(bucket("200.0")));
  CHECK(bucket("+Inf") == 2);
  CHECK(page.Value("vllm:request_prompt_tokens_count", {{"engine", "1"}}) == 2);
}

TEST_CASE("the length becomes known while requests of other shards end") {
  Metrics metrics = MakeMetrics();
  std::thread shard([&metrics] {
    for (int i = 0; i < 20000; ++i) metrics.engine(0).request_prompt_tokens.Observe(3);
  });
  for (int i = 1; i <= 20; ++i) {
    metrics.SetMaxModelLen(int64_t{i} * 100);
    Scrape(metrics);
  }
  shard.join();
  CHECK(Scrape(metrics).Value("vllm:request_prompt_tokens_count") == 20000);
}

TEST_CASE("a KV connector's lookups are counted apart from those of the prefix cache") {
  Metrics metrics = MakeMetrics();
  wire::SchedulerStats stats;
  metrics.Record(0, stats);  // of an engine without one
  stats.connector_prefix_cache_stats = {"nonsense"};
  metrics.Record(0, stats);
  wire::PrefixCacheStats looked_up;
  looked_up.queries = 30;
  looked_up.hits = 20;
  stats.connector_prefix_cache_stats = wire::Packed(looked_up);
  metrics.Record(0, stats);
  const ExpositionParser page = Scrape(metrics);
  CHECK(page.Value("vllm:external_prefix_cache_queries_total", kEngine0) == 30);
  CHECK(page.Value("vllm:external_prefix_cache_hits_total", kEngine0) == 20);
  CHECK(page.Value("vllm:prompt_tokens_cached_by_source_total",
                   {{"source", "external_unspecified"}}) == 20);
  CHECK(page.Value("vllm:prefix_cache_queries_total", kEngine0) == 0);
}

// Prompt tokens by where a connector had them, after one report of 20 hits.
std::map<std::string, double> HitsBySource(const wire::CountsByName& sources) {
  Metrics metrics = MakeMetrics();
  wire::PrefixCacheStats looked_up;
  looked_up.queries = 30;
  looked_up.hits = 20;
  looked_up.hits_by_source = sources;
  wire::SchedulerStats stats;
  stats.connector_prefix_cache_stats = wire::Packed(looked_up);
  metrics.Record(0, stats);
  const ExpositionParser page = Scrape(metrics);
  std::map<std::string, double> found;
  for (const std::string_view source : kCacheSources) {
    const double count = page.Value("vllm:prompt_tokens_cached_by_source_total",
                                    {{"engine", "0"}, {"source", std::string(source)}});
    if (count != 0) found[std::string(source)] = count;
  }
  return found;
}

TEST_CASE("a KV connector's hits are counted by where they were") {
  using Found = std::map<std::string, double>;
  CHECK(HitsBySource({{"host", 16}, {"disk", 4}}) == Found{{"host", 16}, {"disk", 4}});
  CHECK(HitsBySource({{"p2p", 20}}) == Found{{"p2p", 20}});
  CHECK(HitsBySource({{"the moon", 4}, {"host", 16}}) ==
        Found{{"external_unspecified", 4}, {"host", 16}});
  // What does not add up is of no place.
  const Found none = {{"external_unspecified", 20}};
  CHECK(HitsBySource({{"host", 16}}) == none);
  CHECK(HitsBySource({{"host", 21}}) == none);
  CHECK(HitsBySource({{"host", 24}, {"disk", -5}}) == none);
}

TEST_CASE("requests whose KV is fetched are shown by stage, where an engine fetches any") {
  Metrics metrics = MakeMetrics();
  KvFetchStages stages(metrics.engine(0).in);
  stages.Record({});  // of an engine without a connector
  CHECK(metrics.Scrape().find("kv_fetch") == std::string::npos);
  const auto value = [&](const char* stage) {
    return Scrape(metrics).Value("vllm:num_requests_kv_fetch_by_stage",
                                 {{"engine", "0"}, {"stage", stage}});
  };
  stages.Show();
  CHECK(value("waiting_to_start") == 0);
  stages.Record({{"waiting_to_start", 1}, {"in_progress", 2}, {"completed_waiting", 3}});
  CHECK(value("waiting_to_start") == 1);
  CHECK(value("in_progress") == 2);
  CHECK(value("completed_waiting") == 3);
  stages.Record({});  // the engine is gone
  CHECK(value("in_progress") == 0);
}

TEST_CASE("series of offloading appear with their tiers, and count what the engine reports") {
  namespace offload = wire::offload;
  using Kind = wire::ConnectorSeries::Kind;
  Metrics metrics = MakeMetrics();
  CHECK(metrics.Scrape().find("kv_offload") == std::string::npos);
  metrics.offload(0).Show("0:primary,1:fs");
  using Labels = std::map<std::string, std::string>;
  const Labels kFiles = {{"engine", "0"}, {"tier", "1:fs"}};
  CHECK(Scrape(metrics).Value("vllm:kv_offload_tiering_chunk_hits_total", kFiles) == 0);
  CHECK(Scrape(metrics).Value("vllm:kv_offload_cpu_cache_usage_perc", kEngine0) == 0);
  CHECK(Scrape(metrics).Value("vllm:kv_offload_load_size_count", kEngine0) == 0);

  wire::SchedulerStats stats;
  stats.kv_connector_stats = {"nonsense"};
  metrics.Record(0, stats);
  const wire::KvConnectorStats counted = {
      .series = {{std::string(offload::kLoadBytes), Kind::kCounter, {}, {3e6}},
                 {std::string(offload::kLoadSize), Kind::kHistogram, {}, {1e6, 2e6}},
                 {std::string(offload::kCpuUsage), Kind::kGauge, {}, {0.25}},
                 {std::string(offload::kChunkHits), Kind::kCounter, {"1:fs"}, {7}},
                 {std::string(offload::kChunkQueries), Kind::kGauge, {"1:fs"}, {9}},
                 {std::string(offload::kChunkHits), Kind::kCounter, {}, {9}},
                 {"vllm:num_preemptions", Kind::kCounter, {}, {9}}},
      .info = {{"cpu_num_chunks", "12"}, {"not a label", "1"}, {"engine", "5"}}};
  for (int i = 0; i < 2; ++i) {
    stats.kv_connector_stats =
        wire::PackedByConnector({{"OffloadingConnector", wire::Packed(counted)}});
    metrics.Record(0, stats);
  }
  const ExpositionParser page = Scrape(metrics);
  const Labels kLoads = {{"engine", "0"}, {"transfer_type", "CPU_to_GPU"}};
  CHECK(page.Value("vllm:kv_offload_load_bytes_total", kEngine0) == 6e6);
  CHECK(page.Value("vllm:kv_offload_total_bytes_total", kLoads) == 6e6);
  CHECK(page.Value("vllm:kv_offload_load_size_bucket", {{"engine", "0"}, {"le", "1e+06"}}) == 2);
  CHECK(page.Value("vllm:kv_offload_size_count", kLoads) == 4);
  CHECK(page.Value("vllm:kv_offload_cpu_cache_usage_perc", kEngine0) == 0.25);
  CHECK(page.Value("vllm:kv_offload_tiering_chunk_hits_total", kFiles) == 14);
  CHECK(page.Value("vllm:kv_offload_tiering_chunk_queries_total", kFiles) == 0);
  CHECK(page.Value("vllm:num_preemptions_total", kEngine0) == 0);
  CHECK(page.Value("vllm:kv_offload_config_info", {{"engine", "0"}, {"cpu_num_chunks", "12"}}) ==
        1);
  metrics.offload(0).End();
  CHECK(Scrape(metrics).Value("vllm:kv_offload_cpu_cache_usage_perc", kEngine0) == 0);
  CHECK(Scrape(metrics).Value("vllm:kv_offload_load_bytes_total", kEngine0) == 6e6);
}

TEST_CASE("facts of another engine process replace those of the one before") {
  Metrics metrics = MakeMetrics();
  for (const char* size : {"12", "13"}) {
    wire::SchedulerStats stats;
    stats.kv_connector_stats = wire::Packed({.series = {}, .info = {{"cpu_num_chunks", size}}});
    metrics.Record(0, stats);
  }
  CHECK(metrics.Scrape().find("cpu_num_chunks=\"12\"") == std::string::npos);
  CHECK(metrics.Scrape().find("cpu_num_chunks=\"13\"") != std::string::npos);
}

TEST_CASE("scheduler stats become gauges and prefix counters, under their old names too") {
  Metrics metrics = MakeMetrics();
  for (int i = 0; i < 2; ++i) {
    wire::SchedulerStats stats;
    stats.num_running_reqs = 3;
    stats.num_waiting_reqs = 2;
    stats.num_skipped_waiting_reqs = 1;
    stats.kv_cache_usage = 0.25;
    stats.prefix_cache_stats.requests = 1;
    stats.prefix_cache_stats.queries = 100;
    stats.prefix_cache_stats.hits = 64;
    metrics.Record(0, stats);
  }
  const ExpositionParser page = Scrape(metrics);
  CHECK(page.Value("vllm:num_requests_running", kEngine0) == 3);
  CHECK(page.Value("vllm:num_requests_waiting", kEngine0) == 3);
  CHECK(page.Value("vllm:num_requests_waiting_by_reason", {{"reason", "capacity"}}) == 2);
  CHECK(page.Value("vllm:num_requests_waiting_by_reason", {{"reason", "deferred"}}) == 1);
  CHECK(page.Value("vllm:kv_cache_usage_perc", kEngine0) == 0.25);
  CHECK(page.Value("vllm:gpu_cache_usage_perc", kEngine0) == 0.25);
  CHECK(page.Value("vllm:prefix_cache_queries_total", kEngine0) == 200);
  CHECK(page.Value("vllm:gpu_prefix_cache_queries_total", kEngine0) == 200);
  CHECK(page.Value("vllm:prefix_cache_hits_total", kEngine0) == 128);
  CHECK(page.Value("vllm:prompt_tokens_cached_by_source_total", {{"source", "device"}}) == 128);
}

TEST_CASE("a request waits from the moment it is sent, whatever its engine reports") {
  Metrics metrics = MakeMetrics(2);
  EngineLoad& load = metrics.engine(0).load;
  const auto value = [&metrics](const std::string& name, const char* engine) {
    return Scrape(metrics).Value("vllm:num_requests_" + name, {{"engine", engine}});
  };
  const auto report = [&metrics](int64_t running, int64_t waiting, int64_t deferred) {
    wire::SchedulerStats stats;
    stats.num_running_reqs = running;
    stats.num_waiting_reqs = waiting;
    stats.num_skipped_waiting_reqs = deferred;
    metrics.Record(0, stats);
  };
  // Two requests for an engine that is stopped.
  std::optional<UnfinishedRequest> first(&load), second(&load), third;
  CHECK(value("waiting", "0") == 2);
  CHECK(value("running", "0") == 0);
  CHECK(Scrape(metrics).Value("vllm:num_requests_waiting_by_reason",
                              {{"engine", "0"}, {"reason", "capacity"}}) == 2);
  // It runs one and has the other in its queue; a third is on its way.
  report(1, 1, 0);
  CHECK(value("waiting", "0") == 1);
  third.emplace(&load);
  CHECK(value("waiting", "0") == 2);
  CHECK(value("running", "0") == 1);
  report(2, 0, 1);
  CHECK(value("waiting", "0") == 1);
  CHECK(Scrape(metrics).Value("vllm:num_requests_waiting_by_reason",
                              {{"engine", "0"}, {"reason", "deferred"}}) == 1);
  // The engine is lost: what it had waits, until another one has it.
  report(0, 0, 0);
  CHECK(value("waiting", "0") == 3);
  first->MoveTo(&metrics.engine(1).load);
  second->MoveTo(&metrics.engine(1).load);
  CHECK(value("waiting", "0") == 1);
  CHECK(value("waiting", "1") == 2);
  // Ends count once, also when the request lives on.
  first->End();
  first->End();
  first->MoveTo(&load);
  first.reset();
  second.reset();
  third.reset();
  CHECK(value("waiting", "0") == 0);
  CHECK(value("waiting", "1") == 0);
}

TEST_CASE("an aborted request waits no longer before its engine reports it") {
  Metrics metrics = MakeMetrics();
  EngineMetrics& engine = metrics.engine(0);
  StepTokens step(&engine);
  FanOutStats fan_out(&engine, 1);
  RequestStats request(&engine, &step, &fan_out, {});
  CHECK(engine.load.Read().waiting == 1);
  request.OnClientAbort();
  CHECK(engine.load.Read().waiting == 0);
  { RequestStats refused(&engine, &step, &fan_out, {}); }
  CHECK(engine.load.Read().waiting == 0);
}

TEST_CASE("deprecated names can be left out") {
  const Metrics all({.model_name = "m"});
  const Metrics present({.model_name = "m", .show_deprecated = false});
  for (const char* name :
       {"vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hit_rate", "vllm:time_per_output_token_seconds"}) {
    CAPTURE(name);
    CHECK(Scrape(all).families().count(name) == 1);
    CHECK(Scrape(present).families().count(name) == 0);
  }
  CHECK(Scrape(present).families().count("vllm:kv_cache_usage_perc") == 1);
}

TEST_CASE("the CPU time of an engine counts on when another process takes its place") {
  Metrics metrics = MakeMetrics();
  const auto cpu = [&metrics] {
    return Scrape(metrics).Value("tandem:engine_process_cpu_seconds_total", kEngine0);
  };
  metrics.RecordProcess(0, {.resident_bytes = 1000, .cpu_s = 5, .open_files = 7});
  metrics.RecordProcess(0, {.resident_bytes = 2000, .cpu_s = 8});
  CHECK(cpu() == 8);
  metrics.RecordProcess(0, {.resident_bytes = 500, .cpu_s = 1});
  CHECK(cpu() == 9);
  metrics.RecordProcess(0, {.resident_bytes = 500, .cpu_s = 3}, {{"weights mapped", 0.5}});
  CHECK(cpu() == 11);
  CHECK(Scrape(metrics).Value("tandem:engine_process_resident_memory_bytes", kEngine0) == 500);
  std::map<std::string, std::string> phase = kEngine0;
  phase["phase"] = "weights mapped";
  CHECK(Scrape(metrics).Value("tandem:engine_startup_seconds", phase) == 0.5);
}

TEST_CASE("the older hit rate is that of the last thousand requests") {
  Metrics metrics = MakeMetrics();
  wire::SchedulerStats stats;
  stats.prefix_cache_stats.requests = 1;
  stats.prefix_cache_stats.queries = 100;
  stats.prefix_cache_stats.hits = 25;
  metrics.Record(0, stats);
  CHECK(Scrape(metrics).Value("vllm:gpu_prefix_cache_hit_rate", kEngine0) == 0.25);
}

TEST_CASE("buckets of a family can be replaced") {
  const auto buckets = BucketFamilies::Parse(
      R"({"time_to_first_token": [0.5, 2], "request_tokens": [10, 1000000]})");
  REQUIRE(buckets.ok());
  Metrics metrics({.model_name = "m", .num_engines = 1, .max_model_len = 100, .buckets = *buckets});
  metrics.engine(0).time_to_first_token.Observe(1);
  const ExpositionParser page = Scrape(metrics);
  const auto bucket = [&page](const std::string& name, const char* le) {
    return page.Value(name + "_bucket", {{"le", le}});
  };
  CHECK(bucket("vllm:time_to_first_token_seconds", "0.5") == 0);
  CHECK(bucket("vllm:time_to_first_token_seconds", "2.0") == 1);
  CHECK(std::isnan(bucket("vllm:time_to_first_token_seconds", "0.001")));
  // The operator's bounds stay, whatever the model's length is.
  CHECK(bucket("vllm:request_prompt_tokens", "1e+06") == 0);
  CHECK(bucket("vllm:inter_token_latency_seconds", "0.01") == 0);
}

TEST_CASE("buckets that cannot be are refused with the family's name") {
  const auto refusal = [](const std::string& json) {
    return BucketFamilies::Parse(json).status().message();
  };
  CHECK(refusal("[]") == "must be a JSON object of families and lists of bounds");
  CHECK(refusal("{") == "must be a JSON object of families and lists of bounds");
  CHECK(refusal(R"({"ttft": [1]})").starts_with("ttft is no family; known: inter_token_latency "));
  for (const std::string list :
       {"[]", "1", "[0]", "[-1, 1]", "[1, 1]", "[2, 1]", "[\"1\"]", "[true]", "[null]"}) {
    CAPTURE(list);
    CHECK(refusal("{\"inter_token_latency\": " + list + "}") ==
          "inter_token_latency: must be ascending numbers above 0, at least one");
  }
  CHECK(BucketFamilies::Parse("").ok());
}

TEST_CASE("retired names appear for the version before only") {
  CHECK_FALSE(*ShowsHiddenMetrics(""));
  CHECK(*ShowsHiddenMetrics("0.32"));
  CHECK(*ShowsHiddenMetrics("0.32.1"));
  CHECK_FALSE(*ShowsHiddenMetrics("0.31"));
  CHECK_FALSE(*ShowsHiddenMetrics("0.33"));
  for (const char* bad : {"1", "x.y", "0.32.1.2", "0.-1", "0."}) {
    CAPTURE(bad);
    CHECK_FALSE(ShowsHiddenMetrics(bad).ok());
  }
  Metrics metrics({.model_name = "m", .num_engines = 1, .show_hidden = true});
  metrics.engine(0).prompt_tokens.Increment(3);
  metrics.engine(0).generation_tokens.Increment(4);
  metrics.engine(0).request_queue_time.Observe(2);
  const ExpositionParser page = Scrape(metrics);
  CHECK(page.Value("vllm:tokens_total", kEngine0) == 7);
  CHECK(page.Value("vllm:time_in_queue_requests_sum", kEngine0) == 2);
  CHECK(page.Value("vllm:num_requests_swapped", kEngine0) == 0);
  CHECK(page.families().at("vllm:tokens_total").help.starts_with("HIDDEN"));
  CHECK(Scrape(MakeMetrics()).families().count("vllm:tokens_total") == 0);
}

TEST_CASE("names that will go are those whose HELP says so") {
  const Metrics metrics({.model_name = "m", .num_engines = 2, .show_hidden = true});
  const std::string page = metrics.Scrape();
  CHECK(NamesWithHelp(page, "HIDDEN") ==
        "vllm:time_in_queue_requests, vllm:tokens_total, vllm:num_requests_swapped, "
        "vllm:cpu_cache_usage_perc");
  const std::string deprecated = NamesWithHelp(page, "DEPRECATED");
  for (const char* name : {"vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_hit_rate",
                           "vllm:time_per_output_token_seconds"}) {
    CHECK(deprecated.find(name) != std::string::npos);
  }
  CHECK(deprecated.find("vllm:kv_cache_usage_perc") == std::string::npos);
  CHECK(NamesWithHelp("# HELP\n# HELP x\nx 1\n", "DEPRECATED").empty());
}

TEST_CASE("facts about the cache are labels of a constant 1") {
  Metrics metrics = MakeMetrics();
  CHECK(Scrape(metrics).families().count("vllm:cache_config_info") == 0);
  metrics.SetCacheConfig(0, {{"block_size", "32"}, {"num_gpu_blocks", "100"}});
  CHECK(Scrape(metrics).Value("vllm:cache_config_info",
                              {{"block_size", "32"}, {"num_gpu_blocks", "100"}, {"engine", "0"}}) ==
        1);
}

TEST_CASE("an engine that returns with another cache has one set of facts") {
  Metrics metrics = MakeMetrics(2);
  for (const char* num_blocks : {"100", "90", "90"}) {
    for (const int engine : {0, 1})
      metrics.SetCacheConfig(engine, {{"num_gpu_blocks", num_blocks}});
    const auto page = Scrape(metrics);
    CHECK(page.families().at("vllm:cache_config_info").samples.size() == 2);
    CHECK(page.Value("vllm:cache_config_info", {{"num_gpu_blocks", num_blocks}, {"engine", "0"}}) ==
          1);
  }
}

TEST_CASE("methods that clients invent share one series") {
  Metrics metrics = MakeMetrics();
  for (int i = 0; i < 100; ++i) {
    const std::string method = i == 0 ? "" : "BREW" + std::to_string(i);
    metrics.Record({.handler = "none", .method = method, .status = 404, .duration_s = 0.001});
  }
  CHECK(Scrape(metrics).Value("http_requests_total",
                              {{"handler", "none"}, {"method", "other"}, {"status", "4xx"}}) ==
        100);
}

TEST_CASE("HTTP samples are grouped by handler, method and status class") {
  Metrics metrics = MakeMetrics();
  metrics.Record({.handler = "/v1/models", .method = "GET", .status = 200, .duration_s = 0.02});
  metrics.Record({.handler = "/v1/models", .method = "GET", .status = 204, .duration_s = 0.2});
  metrics.Record({.handler = "none",
                  .method = "GET",
                  .status = 404,
                  .request_bytes = 100,
                  .response_bytes = 22,
                  .duration_s = 0.001});
  const ExpositionParser page = Scrape(metrics);
  CHECK(page.Value("http_requests_total", {{"handler", "/v1/models"}, {"status", "2xx"}}) == 2);
  CHECK(page.Value("http_requests_total", {{"handler", "none"}, {"status", "4xx"}}) == 1);
  CHECK(page.Value("http_request_duration_seconds_bucket",
                   {{"handler", "/v1/models"}, {"le", "0.1"}}) == 1);
  CHECK(page.Value("http_request_duration_highr_seconds_count") == 3);
  CHECK(page.families().at("http_request_size_bytes").type == "summary");
  CHECK(page.Value("http_request_size_bytes_sum", {{"handler", "none"}}) == 100);
  CHECK(page.Value("http_response_size_bytes_sum", {{"handler", "none"}}) == 22);
  CHECK(page.Value("http_response_size_bytes_count", {{"handler", "/v1/models"}}) == 2);
}

TEST_CASE("the process's own series exist") {
  const Metrics metrics = MakeMetrics();
  const ExpositionParser page = Scrape(metrics);
  CHECK(page.Value("process_resident_memory_bytes") > 1e6);
  CHECK(page.Value("process_virtual_memory_bytes") > page.Value("process_resident_memory_bytes"));
  CHECK(page.Value("process_open_fds") >= 3);
  CHECK(page.Value("process_max_fds") > 0);
  CHECK(page.Value("process_start_time_seconds") > 1.6e9);
  CHECK(page.families().at("process_cpu_seconds_total").type == "counter");
}

TEST_CASE("with statistics off only http and process series are shown") {
  const Metrics metrics({.model_name = "m", .show_model_series = false});
  const ExpositionParser page = Scrape(metrics);
  for (const auto& [name, _] : page.families()) CHECK(name.rfind("vllm:", 0) != 0);
  CHECK(page.families().count("process_open_fds") == 1);
}

TEST_CASE("no count of several threads is lost, also while scraping") {
  Metrics metrics = MakeMetrics();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&metrics] {
      for (int i = 0; i < 20000; ++i) {
        metrics.engine(0).generation_tokens.Increment();
        metrics.engine(0).inter_token_latency.Observe(0.02);
      }
    });
  }
  for (int i = 0; i < 20; ++i) Scrape(metrics);
  for (auto& thread : threads) thread.join();
  const ExpositionParser page = Scrape(metrics);
  CHECK(page.Value("vllm:generation_tokens_total") == 60000);
  CHECK(page.Value("vllm:inter_token_latency_seconds_count") == 60000);
}

TEST_CASE("series of drafts are at 0 once an engine is known to speculate") {
  Metrics metrics = MakeMetrics();
  CHECK(Scrape(metrics).families().count("vllm:spec_decode_num_drafts_total") == 0);
  metrics.ShowDrafts(0, 2);
  const auto value = [&](const std::string& name, std::map<std::string, std::string> labels) {
    return Scrape(metrics).Value(name, labels);
  };
  CHECK(value("vllm:spec_decode_num_drafts_total", kEngine0) == 0);
  CHECK(value("vllm:spec_decode_num_draft_tokens_total", kEngine0) == 0);
  CHECK(value("vllm:spec_decode_num_accepted_tokens_total", kEngine0) == 0);
  const std::string per_position = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  CHECK(value(per_position, {{"position", "0"}}) == 0);
  CHECK(value(per_position, {{"position", "1"}}) == 0);
  CHECK(std::isnan(value(per_position, {{"position", "2"}})));
  wire::SchedulerStats stats;
  stats.spec_decoding_stats.emplace().num_drafts = 3;
  metrics.Record(0, stats);
  metrics.ShowDrafts(0, 2);  // it came back
  CHECK(value("vllm:spec_decode_num_drafts_total", kEngine0) == 3);
}

TEST_CASE("exemplars: the newest traced observation of each bucket") {
  Exemplars exemplars({1, 2});
  for (size_t i = 0; i < 3; ++i) CHECK_FALSE(exemplars.Read(i));
  exemplars.Add({{1, 2}, 1, 10});  // a bound belongs to its bucket
  exemplars.Add({{3, 4}, 5, 11});
  exemplars.Add({{5, 6}, 7, 12});
  CHECK(exemplars.Read(0)->trace_id == TraceId{1, 2});
  CHECK_FALSE(exemplars.Read(1));
  CHECK(exemplars.Read(2)->trace_id == TraceId{5, 6});
  CHECK(exemplars.Read(2)->value == 7);
  CHECK(exemplars.Read(2)->unix_time == 12);
}

TEST_CASE("exemplars: what is read is what one thread wrote") {
  Exemplars exemplars({1});
  std::vector<std::thread> threads;
  constexpr uint64_t kThreads = 3, kTimes = 20000;
  std::atomic<uint64_t> num_running = kThreads;
  for (uint64_t i = 1; i <= kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (uint64_t n = 0; n < kTimes; ++n) exemplars.Add({{i, i}, 0.5, static_cast<double>(i)});
      --num_running;
    });
  }
  while (num_running > 0) {
    const std::optional<Exemplar> read = exemplars.Read(0);
    if (!read) continue;
    CHECK(read->trace_id.high == read->trace_id.low);
    CHECK(read->unix_time == static_cast<double>(read->trace_id.high));
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("OpenMetrics: counters without _total in their heads, exemplars, an end") {
  Metrics metrics = MakeMetrics();
  metrics.engine(0).time_to_first_token.Observe(0.02, TraceId{1, 2});
  metrics.engine(0).time_to_first_token.Observe(0.03, TraceId());
  const std::string page = metrics.Scrape(MetricsFormat::kOpenMetrics);
  const auto has = [&page](const std::string& text) { return page.find(text) != page.npos; };
  CHECK(has("# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{"));
  CHECK(has("# TYPE vllm:time_to_first_token_seconds histogram\n"));
  CHECK(has(" 1.0 # {trace_id=\"00000000000000010000000000000002\"} 0.02 "));
  CHECK(page.ends_with("# EOF\n"));
  CHECK(metrics.Scrape().find(" # {") == std::string::npos);
  CHECK(metrics.Scrape().find("# EOF") == std::string::npos);
}

TEST_CASE("OpenMetrics: an exemplar is its engine's, whatever the rank of the first") {
  Metrics metrics({.model_name = "m", .num_engines = 2, .first_rank = 3});
  metrics.engine(1).time_to_first_token.Observe(0.02, TraceId{1, 2});
  const std::string page = metrics.Scrape(MetricsFormat::kOpenMetrics);
  const auto has = [&page](const std::string& text) { return page.find(text) != page.npos; };
  CHECK(has("{engine=\"4\",le=\"0.02\",model_name=\"m\"} 1.0 # {trace_id=\"0000"));
  CHECK_FALSE(has("{engine=\"3\",le=\"0.02\",model_name=\"m\"} 0.0 # {"));
}

TEST_CASE("OpenMetrics: it is what an Accept header asks for") {
  CHECK(WantsOpenMetrics("application/openmetrics-text;version=1.0.0;q=0.5,text/plain"));
  CHECK(WantsOpenMetrics("text/plain, Application/OpenMetrics-Text ; version=1.0.0"));
  for (const char* accept : {"", "*/*", "text/plain", "application/openmetrics-text;q=0",
                             "application/openmetrics-text2", "application/json"}) {
    INFO(accept);
    CHECK_FALSE(WantsOpenMetrics(accept));
  }
}

TEST_CASE("promtool accepts the page") {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    std::puts("SKIPPED: promtool is not installed");
    return;
  }
  Metrics metrics = MakeMetrics(2);
  metrics.SetCacheConfig(0, {{"block_size", "32"}});
  metrics.Record({.handler = "/v1/models", .method = "GET", .status = 200, .duration_s = 0.02});
  metrics.engine(0).time_to_first_token.Observe(0.1);
  const TempFolder folder;
  folder.Write("metrics", metrics.Scrape());
  // vLLM's names have colons, and one histogram ends in _total; everything else must be clean.
  const std::string command = "promtool check metrics < " + folder.PathOf("metrics") +
                              " 2>&1 | grep -v \"should not contain ':'\" | "
                              "grep -v 'iteration_tokens_total non-counter' > " +
                              folder.PathOf("complaints");
  CHECK(std::system(command.c_str()) != -1);
  CHECK(folder.Read("complaints") == "");
}

// ---- One request's intervals ----

// Drives a request by a script of engine and frontend stamps and reads what was observed.
struct Fixture {
  Metrics metrics = MakeMetrics();
  EngineMetrics& engine = metrics.engine(0);
  StepTokens step{&engine};

  double Sum(const std::string& name) const {
    return Scrape(metrics).Value(name + "_sum", kEngine0);
  }
  double Count(const std::string& name) const {
    return Scrape(metrics).Value(name + "_count", kEngine0);
  }
  double Total(const std::string& name, std::map<std::string, std::string> labels = {}) const {
    return Scrape(metrics).Value(name + "_total", labels);
  }
};

// The two clocks differ greatly, so that an interval across them would show.
constexpr double kEngineClock = 5000;
constexpr double kFrontendClock = 100;
constexpr const char* kLatencies[] = {
    "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
    "vllm:request_queue_time_seconds",  "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds", "vllm:request_inference_time_seconds",
    "vllm:e2e_request_latency_seconds", "vllm:request_time_per_output_token_seconds",
    "vllm:request_generation_tokens",   "vllm:request_prompt_tokens",
};

TEST_CASE("a plain request: queue, prefill, decode and inference on the engine's clock") {
  Fixture f;
  FanOutStats fan_out(&f.engine, 1);
  RequestStats request(&f.engine, &f.step, &fan_out,
                       {.arrival = kFrontendClock, .num_prompt_tokens = 10, .max_tokens = 20});
  request.OnEvent(RequestEvent::kQueued, kEngineClock);
  request.OnEvent(RequestEvent::kScheduled, kEngineClock + 1);
  request.OnTokens(1, kEngineClock + 3, kFrontendClock + 3.5, PromptCounts{6, 4, 0});
  request.OnTokens(1, kEngineClock + 4, kFrontendClock + 4.5);
  request.OnTokens(1, kEngineClock + 6, kFrontendClock + 6.5);
  request.OnFinished(FinishedReason::kLength, kFrontendClock + 7);
  f.step.End();
  CHECK(f.Sum("vllm:time_to_first_token_seconds") == Approx(3.5));
  CHECK(f.Count("vllm:time_to_first_token_seconds") == 1);
  CHECK(f.Sum("vllm:inter_token_latency_seconds") == Approx(3));
  CHECK(f.Count("vllm:inter_token_latency_seconds") == 2);
  CHECK(f.Sum("vllm:time_per_output_token_seconds") == Approx(3));
  CHECK(f.Sum("vllm:request_queue_time_seconds") == Approx(1));
  CHECK(f.Sum("vllm:request_prefill_time_seconds") == Approx(2));
  CHECK(f.Sum("vllm:request_decode_time_seconds") == Approx(3));
  CHECK(f.Sum("vllm:request_inference_time_seconds") == Approx(5));
  CHECK(f.Sum("vllm:request_time_per_output_token_seconds") == Approx(1.5));
  CHECK(f.Sum("vllm:e2e_request_latency_seconds") == Approx(7));
  CHECK(f.Sum("vllm:request_prompt_tokens") == 10);
  CHECK(f.Sum("vllm:request_generation_tokens") == 3);
  CHECK(f.Sum("vllm:request_max_num_generation_tokens") == 3);
  CHECK(f.Sum("vllm:request_params_n") == 1);
  CHECK(f.Sum("vllm:request_params_max_tokens") == 20);
  CHECK(f.Sum("vllm:request_prefill_kv_computed_tokens") == 6);
  CHECK(f.Total("vllm:prompt_tokens") == 10);
  CHECK(f.Total("vllm:prompt_tokens_by_source", {{"source", "local_compute"}}) == 6);
  CHECK(f.Total("vllm:prompt_tokens_by_source", {{"source", "local_cache_hit"}}) == 4);
  CHECK(f.Total("vllm:prompt_tokens_cached") == 4);
  CHECK(f.Total("vllm:generation_tokens") == 3);
  CHECK(f.Total("vllm:request_success", {{"finished_reason", "length"}}) == 1);
  CHECK(f.Total("vllm:request_success", {{"finished_reason", "stop"}}) == 0);
  // Cached tokens cost a step nothing: 6 + 1, 1, 1.
  CHECK(f.Count("vllm:iteration_tokens_total") == 3);
  CHECK(f.Sum("vllm:iteration_tokens_total") == 9);
}

TEST_CASE("one engine computes the prompt and another decodes: the request counts once") {
  Metrics metrics = MakeMetrics(2);
  StepTokens prefill_step{&metrics.engine(0)}, decode_step{&metrics.engine(1)};
  FanOutStats fan_out(&metrics.engine(1), 1);
  RequestStats request(&metrics.engine(0), &prefill_step, &fan_out,
                       {.arrival = kFrontendClock,
                        .num_prompt_tokens = 10,
                        .max_tokens = 20,
                        .submitted = kFrontendClock + 0.25});
  request.OnWaited(kFrontendClock + 0.75);
  request.OnEvent(RequestEvent::kQueued, kEngineClock);
  request.OnEvent(RequestEvent::kScheduled, kEngineClock + 1);
  request.OnPrefilled(kEngineClock + 4, kFrontendClock + 5, PromptCounts{8, 2, 0});
  request.OnEngineChange(&metrics.engine(1), &decode_step);
  const double other_clock = 70000;
  request.OnEvent(RequestEvent::kQueued, other_clock);
  request.OnEvent(RequestEvent::kScheduled, other_clock + 1);
  request.OnTokens(1, other_clock + 1.5, kFrontendClock + 7, PromptCounts{1, 0, 9});
  request.OnTokens(1, other_clock + 2, kFrontendClock + 7.5);
  request.OnFinished(FinishedReason::kLength, kFrontendClock + 8);
  prefill_step.End();
  decode_step.End();
  const ExpositionParser page = Scrape(metrics);
  const auto value = [&page](const std::string& name, const std::string& engine) {
    return page.Value(name, {{"engine", engine}, {"model_name", "m"}});
  };
  const auto from = [&page](const std::string& source, const std::string& engine) {
    return page.Value("vllm:prompt_tokens_by_source_total",
                      {{"engine", engine}, {"model_name", "m"}, {"source", source}});
  };
  CHECK(from("local_compute", "0") == 8);
  CHECK(from("local_cache_hit", "0") == 2);
  CHECK(from("local_compute", "1") == 1);
  CHECK(from("external_kv_transfer", "1") == 9);
  CHECK(value("vllm:iteration_tokens_total_sum", "0") == 8);
  CHECK(value("vllm:iteration_tokens_total_sum", "1") == 1 + 1 + 1);
  CHECK(value("vllm:iteration_tokens_total_count", "1") == 2);
  CHECK(value("vllm:generation_tokens_total", "0") == 0);
  CHECK(value("vllm:time_to_first_token_seconds_sum", "1") == Approx(7));
  CHECK(value("vllm:request_queue_time_seconds_sum", "1") == Approx(0.5 + 1));
  // 3 in the first engine, 2 by the frontend's clock until the other one's first token.
  CHECK(value("vllm:request_prefill_time_seconds_sum", "1") == Approx(5));
  CHECK(value("vllm:request_decode_time_seconds_sum", "1") == Approx(0.5));
  CHECK(value("vllm:request_prefill_time_seconds_count", "0") == 0);
}

TEST_CASE("another engine goes on: the pause is in the inter-token latency, nothing counts twice") {
  Metrics metrics = MakeMetrics(2);
  StepTokens first_step{&metrics.engine(0)}, second_step{&metrics.engine(1)};
  FanOutStats fan_out(&metrics.engine(0), 1);
  RequestStats request(&metrics.engine(0), &first_step, &fan_out,
                       {.arrival = kFrontendClock, .num_prompt_tokens = 10, .max_tokens = 20});
  request.OnEvent(RequestEvent::kQueued, kEngineClock);
  request.OnEvent(RequestEvent::kScheduled, kEngineClock + 1);
  request.OnTokens(1, kEngineClock + 3, kFrontendClock + 3, PromptCounts{6, 4, 0});
  request.OnEngineChange(&metrics.engine(1), &second_step);
  const double other_clock = 70000;
  request.OnEvent(RequestEvent::kQueued, other_clock);
  request.OnEvent(RequestEvent::kScheduled, other_clock + 0.5);
  request.OnTokens(1, other_clock + 1, kFrontendClock + 8);
  request.OnTokens(1, other_clock + 3, kFrontendClock + 10);
  request.OnEngineChange(&metrics.engine(1), &second_step);
  request.OnTokens(1, 1, kFrontendClock + 11);
  request.OnTokens(1, 2, kFrontendClock + 12);
  request.OnFinished(FinishedReason::kLength, kFrontendClock + 12);
  first_step.End();
  second_step.End();
  const ExpositionParser page = Scrape(metrics);
  const auto value = [&page](const std::string& name, const std::string& engine) {
    return page.Value(name, {{"engine", engine}, {"model_name", "m"}});
  };
  CHECK(value("vllm:inter_token_latency_seconds_sum", "1") == Approx(9));  // 5 + 2 + 1 + 1
  CHECK(value("vllm:inter_token_latency_seconds_count", "1") == 4);
  CHECK(value("vllm:generation_tokens_total", "0") == 1);
  CHECK(value("vllm:generation_tokens_total", "1") == 4);
  CHECK(value("vllm:prompt_tokens_total", "0") == 10);
  CHECK(value("vllm:prompt_tokens_total", "1") == 0);
  CHECK(value("vllm:iteration_tokens_total_sum", "1") == 4);
  CHECK(value("vllm:request_queue_time_seconds_sum", "1") == Approx(1));
  CHECK(value("vllm:request_prefill_time_seconds_sum", "1") == Approx(2));
  CHECK(value("vllm:request_decode_time_seconds_sum", "1") == Approx(9));
  CHECK(value("vllm:e2e_request_latency_seconds_sum", "1") == Approx(12));
  CHECK(value("vllm:request_generation_tokens_sum", "1") == 5);
  CHECK(value("vllm:time_to_first_token_seconds_count", "1") == 0);
}

TEST_CASE("preempted while prefilling: in prefill and TTFT, not in the queue") {
  Fixture f;
  FanOutStats fan_out(&f.engine, 1);
  RequestStats request(&f.engine, &f.step, &fan_out, {.arrival = 0, .num_prompt_tokens = 5});
  request.OnEvent(RequestEvent::kQueued, kEngineClock);
  request.OnEvent(RequestEvent::kScheduled, kEngineClock + 1);
  request.OnEvent(RequestEvent::kPreempted, kEngineClock + 2);
  request.OnEvent(RequestEvent::kScheduled, kEngineClock + 12);
  request.OnTokens(1, kEngineClock + 13, 13.5, PromptCounts{5, 0, 0});
  request.OnFinished(FinishedReason::kStop, 14);
  CHECK(f.Sum("vllm:request_queue_time_seconds") == Approx(1));
  CHECK(f.Sum("vllm:request_prefill_time_seconds") == Approx(12));
  CHECK(f.Sum("vllm:time_to_first_token_seconds") == Approx(13.5));
  CHECK(f.Sum("vllm:request_inference_time_seconds") == Approx(12));
  CHECK(f.Sum("vllm:request_num_preemptions") == 1);
  CHECK(f.Total("vllm:num_preemptions") == 1);
}

TEST_CASE("preempted while decoding: in decode, inference and the gap between tokens") {
  Fixture f;
  FanOutStats fan_out(&f.engine, 1);
  RequestStats request(&f.engine, &f.step, &fan_out, {.arrival = 0, .num_prompt_tokens = 5});
  request.OnEvent(RequestEvent::kQueued, kEngineClock);
  request.OnEvent(RequestEvent::kScheduled, kEngineClock + 1);
  request.OnTokens(1, kEngineClock + 2, 2, PromptCounts{5, 0, 0});
  request.OnEvent(RequestEvent::kPreempted, kEngineClock + 3);
  request.OnEvent(RequestEvent::kScheduled, kEngineClock + 9);
  request.OnTokens(1, kEngineClock + 10, 10, PromptCounts{0, 5, 0});
  request.OnFinished(FinishedReason::kStop, 11);
  CHECK(f.Sum("vllm:request_queue_time_seconds") == Approx(1));
  CHECK(f.Sum("vllm:request_prefill_time_seconds") == Approx(1));
  CHECK(f.Sum("vllm:request_decode_time_seconds") == Approx(8));
  CHECK(f.Sum("vllm:inter_token_latency_seconds") == Approx(8));
  CHECK(f.Sum("vllm:request_inference_time_seconds") == Approx(9));
  CHECK(f.Total("vllm:prompt_tokens") == 5);  // the prompt is counted once
  CHECK(f.Count("vllm:time_to_first_token_seconds") == 1);
}

TEST_CASE("one token: TPOT is observed as 0, there is no gap between tokens") {
  Fixture f;
  FanOutStats fan_out(&f.engine, 1);
  RequestStats request(&f.engine, &f.step, &fan_out, {.arrival = 0, .num_prompt_tokens = 5});
  request.OnEvent(RequestEvent::kScheduled, kEngineClock);
  request.OnTokens(1, kEngineClock + 2, 2, PromptCounts{5, 0, 0});
  request.OnFinished(FinishedReason::kLength, 2);
  CHECK(f.Count("vllm:request_time_per_output_token_seconds") == 1);
  CHECK(f.Sum("vllm:request_time_per_output_token_seconds") == 0);
  CHECK(f.Sum("vllm:request_decode_time_seconds") == 0);
  CHECK(f.Count("vllm:inter_token_latency_seconds") == 0);
  CHECK(f.Count("vllm:request_queue_time_seconds") == 0);  // never stamped as queued
  CHECK(f.Count("vllm:request_params_max_tokens") == 0);   // none was resolved
}

TEST_CASE("several tokens in one output are one gap and all counted") {
  Fixture f;
  FanOutStats fan_out(&f.engine, 1);
  RequestStats request(&f.engine, &f.step, &fan_out, {.arrival = 0, .num_prompt_tokens = 1});
  request.OnEvent(RequestEvent::kScheduled, kEngineClock);
  request.OnTokens(1, kEngineClock + 1, 1, PromptCounts{1, 0, 0});
  request.OnTokens(4, kEngineClock + 3, 3);
  request.OnFinished(FinishedReason::kStop, 3);
  CHECK(f.Count("vllm:inter_token_latency_seconds") == 1);
  CHECK(f.Total("vllm:generation_tokens") == 5);
  CHECK(f.Sum("vllm:request_time_per_output_token_seconds") == Approx(0.5));
}

TEST_CASE("a client abort is counted and leaves no latency and no length") {
  Fixture f;
  FanOutStats fan_out(&f.engine, 1);
  RequestStats request(&f.engine, &f.step, &fan_out, {.arrival = 0, .num_prompt_tokens = 5});
  SECTION("before the first token") {
    request.OnClientAbort();
    for (const char* name : kLatencies) CHECK(f.Count(name) == 0);
    CHECK(f.Total("vllm:prompt_tokens") == 0);
  }
  SECTION("between tokens: what was counted stays") {
    request.OnEvent(RequestEvent::kScheduled, kEngineClock);
    request.OnTokens(1, kEngineClock + 1, 1, PromptCounts{5, 0, 0});
    request.OnTokens(1, kEngineClock + 2, 2);
    request.OnClientAbort();
    CHECK(f.Count("vllm:e2e_request_latency_seconds") == 0);
    CHECK(f.Count("vllm:request_generation_tokens") == 0);
    CHECK(f.Total("vllm:generation_tokens") == 2);
    CHECK(f.Count("vllm:time_to_first_token_seconds") == 1);
  }
  request.OnClientAbort();
  request.OnFinished(FinishedReason::kStop, 5);  // the engine's late output
  CHECK(f.Total("vllm:request_success", {{"finished_reason", "abort"}}) == 1);
  CHECK(f.Total("vllm:request_success", {{"finished_reason", "stop"}}) == 0);
  CHECK(f.Count("vllm:request_params_n") == 0);
}

TEST_CASE("a request that the engine ended before running it has an end and no intervals") {
  Fixture f;
  FanOutStats fan_out(&f.engine, 1);
  RequestStats request(&f.engine, &f.step, &fan_out, {.arrival = 1, .num_prompt_tokens = 5});
  request.OnEvent(RequestEvent::kQueued, kEngineClock);
  request.OnTokens(0, kEngineClock + 2, 3);
  request.OnFinished(FinishedReason::kAbort, 4);
  for (const char* name :
       {"vllm:time_to_first_token_seconds", "vllm:request_queue_time_seconds",
        "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds",
        "vllm:request_inference_time_seconds", "vllm:request_time_per_output_token_seconds"}) {
    CAPTURE(name);
    CHECK(f.Count(name) == 0);
  }
  CHECK(f.Sum("vllm:e2e_request_latency_seconds") == Approx(3));
  CHECK(f.Total("vllm:request_success", {{"finished_reason", "abort"}}) == 1);
  CHECK(f.Total("vllm:prompt_tokens") == 0);
}

TEST_CASE("each of n choices is counted, n and the longest choice once") {
  Fixture f;
  FanOutStats fan_out(&f.engine, 3);
  std::deque<RequestStats> answers;
  for (int i = 0; i < 3; ++i) {
    answers.emplace_back(&f.engine, &f.step, &fan_out,
                         RequestStats::Request{.arrival = 0, .num_prompt_tokens = 4});
    answers.back().OnEvent(RequestEvent::kScheduled, kEngineClock);
    answers.back().OnTokens(1, kEngineClock + 1, 1, PromptCounts{4, 0, 0});
  }
  f.step.End();
  CHECK(f.Count("vllm:iteration_tokens_total") == 1);  // one step for all three
  CHECK(f.Sum("vllm:iteration_tokens_total") == 15);
  answers[1].OnTokens(6, kEngineClock + 2, 2);
  answers[0].OnFinished(FinishedReason::kStop, 2);
  answers[1].OnFinished(FinishedReason::kStop, 2);
  CHECK(f.Count("vllm:request_params_n") == 0);
  answers[2].OnFinished(FinishedReason::kLength, 2);
  CHECK(f.Count("vllm:request_params_n") == 1);
  CHECK(f.Sum("vllm:request_params_n") == 3);
  CHECK(f.Sum("vllm:request_max_num_generation_tokens") == 7);
  CHECK(f.Count("vllm:request_generation_tokens") == 3);
  CHECK(f.Total("vllm:prompt_tokens") == 12);
  CHECK(f.Count("vllm:time_to_first_token_seconds") == 3);
}

TEST_CASE("a step ends when outputs of another time arrive") {
  Fixture f;
  f.step.Add(1, 5);
  f.step.Add(1, 2);
  f.step.Add(2, 1);
  CHECK(f.Count("vllm:iteration_tokens_total") == 1);
  CHECK(f.Sum("vllm:iteration_tokens_total") == 7);
  f.step.End();
  f.step.End();
  CHECK(f.Count("vllm:iteration_tokens_total") == 2);
}

// ---- The statistics line ----

TEST_CASE("the hit rate is weighted by tokens over the last thousand requests") {
  HitRateWindow window;
  CHECK(window.empty());
  window.Add(0, 0, 0);
  CHECK(window.empty());
  window.Add(1, 100, 0);
  window.Add(1, 300, 200);
  CHECK(window.rate() == Approx(0.5));
  window.Add(999, 1000, 1000);  // the first falls out: 1,001 requests
  CHECK(window.rate() == Approx(1200.0 / 1300));
  window.Reset();
  CHECK(window.empty());
}

TEST_CASE("the statistics line shows rates since the previous line") {
  Metrics metrics = MakeMetrics();
  EngineMetrics& engine = metrics.engine(0);
  StatsLog log(&engine, 0, 100);
  engine.prompt_tokens_by_source[PromptSource::kLocalCompute].Increment(50);
  engine.prompt_tokens_by_source[PromptSource::kLocalCacheHit].Increment(1000);
  engine.generation_tokens.Increment(25);
  engine.num_preemptions.Increment(2);
  wire::SchedulerStats stats;
  stats.num_running_reqs = 2;
  stats.num_waiting_reqs = 1;
  stats.kv_cache_usage = 0.123;
  stats.prefix_cache_stats.requests = 1;
  stats.prefix_cache_stats.queries = 8;
  stats.prefix_cache_stats.hits = 6;
  metrics.Record(0, stats);
  log.RecordPrefix(stats.prefix_cache_stats);
  bool busy = false;
  CHECK(
      log.Line(105, &busy) ==
      "Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 5.0 tokens/s, "
      "Running: 2 reqs, Waiting: 1 reqs, Preemptions: 2, KV cache usage: 12.3%, "
      "Prefix cache hit rate: 75.0%");
  CHECK(busy);
  const std::string idle = log.Line(110, &busy);
  CHECK(busy);  // the first idle line still shows the end
  CHECK(idle.find("Avg prompt throughput: 0.0 tokens/s") != std::string::npos);
  CHECK(idle.find("Preemptions") == std::string::npos);
  log.Line(115, &busy);
  CHECK_FALSE(busy);

  wire::PrefixCacheStats connector;
  connector.requests = 1;
  connector.queries = 4;
  connector.hits = 1;
  log.RecordConnector({});
  log.RecordConnector({"nonsense"});
  log.RecordConnector(wire::Packed(connector));
  CHECK(log.Line(120, &busy)
            .ends_with("Prefix cache hit rate: 75.0%, External prefix cache hit rate: 25.0%"));
}

// Drafts and accepted ones of requests, as counts of a step.
wire::SpecDecodingStats DraftStats(std::vector<std::pair<int64_t, int64_t>> drafted_accepted) {
  wire::SpecDecodingStats stats;
  stats.num_spec_tokens = 3;
  stats.num_accepted_tokens_per_pos.resize(3);
  for (const auto& [drafted, accepted] : drafted_accepted) {
    ++stats.num_drafts;
    stats.num_draft_tokens += drafted;
    stats.num_accepted_tokens += accepted;
    for (size_t i = 0; i < static_cast<size_t>(accepted); ++i) {
      ++stats.num_accepted_tokens_per_pos[i];
    }
  }
  return stats;
}

TEST_CASE("series of drafts are absent without speculation, and counted with it") {
  Metrics metrics = MakeMetrics();
  CHECK(metrics.Scrape().find("spec_decode") == std::string::npos);
  wire::SchedulerStats stats;
  stats.spec_decoding_stats = DraftStats({{1, 0}, {3, 3}});
  metrics.Record(0, stats);
  stats.spec_decoding_stats = DraftStats({{3, 2}});
  metrics.Record(0, stats);
  const std::string page = metrics.Scrape();
  for (const char* end : {"position=\"0\"} 2", "position=\"1\"} 2", "position=\"2\"} 1"}) {
    CHECK(page.find(end) != std::string::npos);
  }
  CHECK(page.find("position=\"3\"") == std::string::npos);
  CHECK(page.find("vllm:spec_decode_num_draft_tokens_total{") != std::string::npos);
}

// What vLLM 0.33 wrote for the same counts.
TEST_CASE("the line about drafts") {
  DraftLog log(100);
  CHECK(log.Line(110).empty());
  log.Record(DraftStats({{1, 0}, {3, 3}}));
  log.Record(DraftStats({{1, 0}, {1, 0}}));
  log.Record(DraftStats({{1, 0}, {2, 1}}));
  log.Record(DraftStats({{3, 1}, {1, 0}}));
  CHECK(log.Line(120) ==
        "SpecDecoding metrics: Mean acceptance length: 1.62, Accepted throughput: 0.50 tokens/s, "
        "Drafted throughput: 1.30 tokens/s, Accepted: 5 tokens, Drafted: 13 tokens, "
        "Per-position acceptance rate: 0.375, 0.125, 0.125, Avg Draft acceptance rate: 38.5%");
  CHECK(log.Line(130).empty());
}

TEST_CASE("the line's interval comes from the environment") {
  ::unsetenv("TANDEM_LOG_STATS_INTERVAL");
  ::unsetenv("VLLM_LOG_STATS_INTERVAL");
  CHECK(StatsLogInterval() == 5);
  ::setenv("VLLM_LOG_STATS_INTERVAL", "2.5", 1);
  CHECK(StatsLogInterval() == 2.5);
  ::setenv("TANDEM_LOG_STATS_INTERVAL", "-1", 1);
  CHECK(StatsLogInterval() == 5);
  ::setenv("TANDEM_LOG_STATS_INTERVAL", "soon", 1);
  CHECK(StatsLogInterval() == 5);
  ::unsetenv("TANDEM_LOG_STATS_INTERVAL");
  ::unsetenv("VLLM_LOG_STATS_INTERVAL");
}

TEST_CASE("KV residency: three histograms, only when enabled") {
  Metrics without = MakeMetrics();
  wire::SchedulerStats stats;
  stats.kv_cache_eviction_events = {{12, 3, {0.25, 0.5}}, {20, 4, {}}};
  without.Record(0, stats);
  CHECK(without.Scrape().find("vllm:kv_block_") == std::string::npos);

  Metrics metrics({.model_name = "m", .kv_cache_metrics = true});
  CHECK(metrics.Scrape().find("vllm:kv_block_reuse_gap_seconds_count{") != std::string::npos);
  metrics.Record(0, stats);
  const ExpositionParser page = Scrape(metrics);
  CHECK(page.Value("vllm:kv_block_lifetime_seconds_count", kEngine0) == 2);
  CHECK(page.Value("vllm:kv_block_lifetime_seconds_sum", kEngine0) == 32);
  CHECK(page.Value("vllm:kv_block_idle_before_evict_seconds_sum", kEngine0) == 7);
  CHECK(page.Value("vllm:kv_block_reuse_gap_seconds_count", kEngine0) == 2);
  CHECK(page.Value("vllm:kv_block_reuse_gap_seconds_sum", kEngine0) == 0.75);
}

}  // namespace
}  // namespace tandem
