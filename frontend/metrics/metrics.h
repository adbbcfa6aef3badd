#pragma once

// The table of everything /metrics shows: one line per metric. Names, labels and bounds are vLLM
// 0.33's, so that dashboards, autoscalers and routers made for it work. To add a metric, add its
// line here and one Observe where the event happens.
// Thread: main builds it; any shard may use the instruments. A scrape calls no engine.
// Units: seconds, tokens, fractions of 1.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/process_stats.h"
#include "frontend/engine_client/resume_policy.h"
#include "frontend/metrics/adapter_info.h"
#include "frontend/metrics/buckets.h"
#include "frontend/metrics/counts.h"
#include "frontend/metrics/engine_load.h"
#include "frontend/metrics/hit_rate_window.h"
#include "frontend/metrics/instruments.h"
#include "frontend/metrics/offload_metrics.h"
#include "frontend/metrics/sleep_levels.h"
#include "frontend/tracing/span_outcome.h"
#include "proto_msgpack/schema.h"

namespace prometheus {
struct MetricFamily;
}

namespace tandem {

// Values count from 0 in the order of the name lists below.
enum class FinishedReason { kStop, kLength, kAbort, kError, kRepetition };
enum class WaitingReason { kCapacity, kDeferred };
enum class PromptSource { kLocalCompute, kLocalCacheHit, kExternalKvTransfer };
enum class CacheSource { kDevice, kHost, kP2p, kDisk, kExternalUnspecified };
enum class SleepState { kAwake, kWeightsOffloaded, kDiscardAll };
enum class RejectionReason { kMaxNumQueuedReqs, kMaxNumQueuedTokens, kMaxTtft };
enum class ExpiryStage { kQueue, kDecode };
enum class SleepCall { kSleep, kReleaseKvCache, kWake };
enum class WeightUpdate { kInit, kShutdown, kStart, kStartDraft, kUpdate, kFinish };
enum class RequestType { kChatCompletions, kResponses, kOther };
enum class ParserMode { kStreaming, kNonStreaming };
enum class ParserOutcome { kToolCall, kNoToolCall };
enum class MetricsFormat { kText, kOpenMetrics };

using Names2 = std::array<std::string_view, 2>;
using Names3 = std::array<std::string_view, 3>;
using Names5 = std::array<std::string_view, 5>;
constexpr Names5 kFinishedReasons = {"stop", "length", "abort", "error", "repetition"};
constexpr Names2 kWaitingReasons = {"capacity", "deferred"};
constexpr Names3 kPromptSources = {"local_compute", "local_cache_hit", "external_kv_transfer"};
constexpr Names5 kCacheSources = {"device", "host", "p2p", "disk", "external_unspecified"};
constexpr Names3 kSleepStates = {"awake", "weights_offloaded", "discard_all"};
constexpr Names3 kRejectionReasons = {"max_num_queued_reqs", "max_num_queued_tokens", "max_ttft"};
constexpr Names2 kExpiryStages = {"queue", "decode"};
constexpr Names3 kSleepCalls = {"sleep", "release_kv_cache_memory", "wake"};
constexpr std::array<std::string_view, 6> kWeightUpdates = {"init",        "shutdown", "start",
                                                            "start_draft", "update",   "finish"};
constexpr Names3 kRequestTypes = {"chat_completions", "responses", "other"};
constexpr Names2 kParserModes = {"streaming", "non_streaming"};
constexpr std::array<std::string_view, 4> kSpanOutcomes = {"exported", "queue_full", "refused",
                                                           "undelivered"};
constexpr Names2 kParserOutcomes = {"tool_call", "no_tool_call"};

// How often the parser of tool calls ran, by what it found; one request type and mode.
using ParserInvocations = LabelledSet<Counter, ParserOutcome, 2>;

// Series of one engine; labels engine and model_name.
// clang-format off
struct EngineMetrics {
  EngineMetrics(const MetricScope& scope, const BucketFamilies& buckets) : in(scope), buckets_(buckets) {}
  // Histograms with a bound for every length; a scrape shows bounds up to the model's.
  std::array<const Histogram*, 5> token_histograms() const {
    return {&request_prompt_tokens, &request_generation_tokens, &request_max_num_generation_tokens,
            &request_params_max_tokens, &request_prefill_kv_computed_tokens};
  }

  // Histograms whose traced observations OpenMetrics shows.
  std::array<const Histogram*, 6> traced_histograms() const {
    return {&time_to_first_token, &e2e_request_latency,  &request_queue_time,
            &request_prefill_time, &request_decode_time, &request_inference_time};
  }

  // The gauges of waiting and running requests show what `load` has now. Before a scrape.
  void ShowLoad();

  EngineLoad load;
  const MetricScope in;
 private:
  const BucketFamilies& buckets_;
 public:
  // The scheduler's state after its last step.
  Gauge num_requests_running{in, "vllm:num_requests_running", "Requests in the running batch."};
  Gauge num_requests_waiting{in, "vllm:num_requests_waiting", "Requests waiting to run, deferred ones included."};
  LabelledSet<Gauge, WaitingReason, 2> num_requests_waiting_by_reason{in, "vllm:num_requests_waiting_by_reason", "Requests waiting to run, by what they wait for.", "reason", kWaitingReasons};
  Gauge kv_cache_usage_perc{in, "vllm:kv_cache_usage_perc", "KV cache in use, 1 is full.", "vllm:gpu_cache_usage_perc"};
  Gauge gpu_prefix_cache_hit_rate{in, "vllm:gpu_prefix_cache_hit_rate", "DEPRECATED: divide the rates of vllm:prefix_cache_hits_total and vllm:prefix_cache_queries_total. Share of prompt tokens found in the prefix cache, over the last 1000 requests."};
  Gauge max_num_seqs{in, "tandem:max_num_seqs", "Most requests of a step."};
  Gauge max_num_batched_tokens{in, "tandem:max_num_batched_tokens", "Most tokens of a step."};
  LabelledSet<Gauge, SleepState, 3> engine_sleep_state{in, "vllm:engine_sleep_state", "1 for the state the engine is in.", "sleep_state", kSleepStates};

  Counter prefix_cache_queries{in, "vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", "vllm:gpu_prefix_cache_queries_total"};
  Counter prefix_cache_hits{in, "vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", "vllm:gpu_prefix_cache_hits_total"};
  Counter external_prefix_cache_queries{in, "vllm:external_prefix_cache_queries_total", "Prompt tokens looked up in other engines' caches."};
  Counter external_prefix_cache_hits{in, "vllm:external_prefix_cache_hits_total", "Prompt tokens taken from other engines' caches."};
  // Of the frontend's own cache, but vLLM's labels are an engine's: the first one's counts.
  Counter mm_cache_queries{in, "vllm:mm_cache_queries_total", "Images that were looked for among those prepared before."};
  Counter mm_cache_hits{in, "vllm:mm_cache_hits_total", "Images that were found there."};
  LabelledSet<Counter, CacheSource, 5> prompt_tokens_cached_by_source{in, "vllm:prompt_tokens_cached_by_source_total", "Cached prompt tokens at admission, by where they were cached.", "source", kCacheSources};
  Counter num_preemptions{in, "vllm:num_preemptions_total", "Times a running request was preempted."};

  // Tokens, counted when outputs arrive.
  Counter prompt_tokens{in, "vllm:prompt_tokens_total", "Prompt tokens of requests that produced a first output."};
  LabelledSet<Counter, PromptSource, 3> prompt_tokens_by_source{in, "vllm:prompt_tokens_by_source_total", "Prompt tokens by where their KV came from.", "source", kPromptSources};
  Counter prompt_tokens_cached{in, "vllm:prompt_tokens_cached_total", "Prompt tokens that were not computed here."};
  Counter generation_tokens{in, "vllm:generation_tokens_total", "Tokens generated."};
  LabelledSet<Counter, FinishedReason, 5> request_success{in, "vllm:request_success_total", "Requests that ended, by reason.", "finished_reason", kFinishedReasons};
  Counter corrupted_requests{in, "vllm:corrupted_requests_total", "Requests whose logits held NaN or infinity."};
  Counter engine_restarts{in, "tandem:engine_restarts_total", "Times the engine came back after it was lost."};
  Counter engine_swaps{in, "tandem:engine_swaps_total", "Times another engine took over while this one served."};
  // The engine's process, as of the scrape before; only for Tandem's own engines.
  Gauge process_resident_memory_bytes{in, "tandem:engine_process_resident_memory_bytes", "Resident memory of the engine's process."};
  Gauge process_virtual_memory_bytes{in, "tandem:engine_process_virtual_memory_bytes", "Virtual memory of the engine's process."};
  Gauge process_start_time_seconds{in, "tandem:engine_process_start_time_seconds", "Unix time the engine's process started at."};
  Gauge process_open_fds{in, "tandem:engine_process_open_fds", "Open file descriptors of the engine's process."};
  Counter process_cpu_seconds{in, "tandem:engine_process_cpu_seconds_total", "CPU time of the engine's processes, one after the other."};
  std::atomic<double> process_cpu_before{0};  // of earlier processes
  std::atomic<double> process_asked_at{-1e9};  // monotonic, when they were last requested
  Histogram iteration_tokens{in, "vllm:iteration_tokens_total", "Computed prompt and generated tokens of an engine step.", buckets_["iteration_tokens"]};

  // Latencies: see request_stats.h for what each interval is.
  Histogram time_to_first_token{in, "vllm:time_to_first_token_seconds", "Arrival to first token.", buckets_["time_to_first_token"]};
  Histogram inter_token_latency{in, "vllm:inter_token_latency_seconds", "Between two outputs of a request.", buckets_["inter_token_latency"], "vllm:time_per_output_token_seconds"};
  Histogram request_time_per_output_token{in, "vllm:request_time_per_output_token_seconds", "Decode time per token after the first, for a request.", buckets_["inter_token_latency"]};
  Histogram e2e_request_latency{in, "vllm:e2e_request_latency_seconds", "Arrival to the end of a request.", buckets_["request_latency"]};
  Histogram request_queue_time{in, "vllm:request_queue_time_seconds", "In the queue, to the first scheduling.", buckets_["request_latency"]};
  Histogram request_prefill_time{in, "vllm:request_prefill_time_seconds", "First scheduling to first token.", buckets_["request_latency"]};
  Histogram request_decode_time{in, "vllm:request_decode_time_seconds", "First token to last token.", buckets_["request_latency"]};
  Histogram request_inference_time{in, "vllm:request_inference_time_seconds", "First scheduling to last token.", buckets_["request_latency"]};

  // Sizes, one observation per ended request.
  Histogram request_prompt_tokens{in, "vllm:request_prompt_tokens", "Prompt tokens of a request.", buckets_["request_tokens"]};
  Histogram request_generation_tokens{in, "vllm:request_generation_tokens", "Tokens generated for a request.", buckets_["request_tokens"]};
  Histogram request_max_num_generation_tokens{in, "vllm:request_max_num_generation_tokens", "Tokens of the longest choice of a request.", buckets_["request_tokens"]};
  Histogram request_params_n{in, "vllm:request_params_n", "Choices requested (n).", buckets_["request_params_n"]};
  Histogram request_params_max_tokens{in, "vllm:request_params_max_tokens", "Token limit of a request (max_tokens).", buckets_["request_tokens"]};
  Histogram request_prefill_kv_computed_tokens{in, "vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed, not found in a cache.", buckets_["request_tokens"]};
  Histogram request_num_preemptions{in, "vllm:request_num_preemptions", "Times a request was preempted.", buckets_["request_num_preemptions"]};
};

// Series of one engine that exist only with --kv-cache-metrics.
struct KvResidencyMetrics {
  KvResidencyMetrics(const MetricScope& scope, const BucketFamilies& buckets) : in(scope), buckets_(buckets) {}
  const MetricScope in;
 private:
  const BucketFamilies& buckets_;
 public:
  Histogram kv_block_lifetime{in, "vllm:kv_block_lifetime_seconds", "Sampled KV blocks: allocation to eviction.", buckets_["kv_cache_residency"]};
  Histogram kv_block_idle_before_evict{in, "vllm:kv_block_idle_before_evict_seconds", "Sampled KV blocks: last use to eviction.", buckets_["kv_cache_residency"]};
  Histogram kv_block_reuse_gap{in, "vllm:kv_block_reuse_gap_seconds", "Sampled KV blocks: between one use and the next, the last four.", buckets_["kv_cache_residency"]};
};

// Series of the frontend itself; label model_name.
struct FrontendMetrics {
  explicit FrontendMetrics(const MetricScope& scope) : in(scope) {}
  const MetricScope in;
  LabelledSet<Counter, RejectionReason, 3> admission_rejections{in, "vllm:admission_rejections_total", "Requests refused because a queue limit was reached.", "reason", kRejectionReasons};
  LabelledSet<LabelledSet<ParserInvocations, ParserMode, 2>, RequestType, 3> tool_call_parser_invocations{in, "vllm:tool_call_parser_invocations_total", "Texts in which tool calls were looked for: whole responses, and deltas of streams.", "request_type", kRequestTypes, "mode", kParserModes, "outcome", kParserOutcomes};
  LabelledSet<Counter, ExpiryStage, 2> requests_expired{in, "tandem:requests_expired_total", "Requests whose time was over, before their first token (queue) or after it (decode).", "stage", kExpiryStages};
  Gauge queued_requests{in, "tandem:queued_requests", "Requests without a first token, from their arrival on."};
  Gauge queued_prompt_tokens{in, "tandem:queued_prompt_tokens", "Prompt tokens of these requests."};
  Gauge text_pool_waiting_jobs{in, "tandem:text_pool_waiting_jobs", "Templates and texts that wait for a thread."};
  Counter text_pool_wait_seconds{in, "tandem:text_pool_wait_seconds_total", "Time that these have waited."};
  Gauge stored_responses{in, "tandem:stored_responses", "Responses of /v1/responses that are kept."};
  Gauge stored_response_bytes{in, "tandem:stored_response_bytes", "Bytes of kept responses, with their conversations and events."};
  LabelledSet<Counter, ResumeOutcome, 6> requests_resumed{in, "tandem:requests_resumed_total", "Requests that lost their engine, by what became of them; each loss counts.", "outcome", kResumeOutcomes};
  LabelledSet<Counter, SpanOutcome, 4> trace_spans{in, "tandem:trace_spans_total", "Spans of traces, by what became of them; queue_full, refused and undelivered ones are lost.", "outcome", kSpanOutcomes};
  Counter requests_moved{in, "tandem:requests_moved_total", "Requests that moved to an engine which took over from theirs."};
};

// Series of the routes that --server-dev-mode adds.
struct DevMetrics {
  explicit DevMetrics(const MetricScope& scope) : in(scope) {}
  const MetricScope in;
  LabelledSet<Gauge, SleepCall, 3> sleep_calls_in_flight{in, "vllm:sleep_mode_operations_in_flight", "Sleep and wake calls under way.", "operation", kSleepCalls};
  LabelledSet<Histogram, SleepCall, 3> sleep_call_duration{in, "vllm:sleep_mode_operation_duration_seconds", "Duration of sleep and wake calls.", "operation", kSleepCalls, DevCallBuckets()};
  LabelledSet<Gauge, WeightUpdate, 6> weight_updates_in_flight{in, "vllm:rl_weight_update_operations_in_flight", "Weight updates under way. Always 0: tandem swap replaces weights.", "operation", kWeightUpdates};
  LabelledSet<Histogram, WeightUpdate, 6> weight_update_duration{in, "vllm:rl_weight_update_operation_duration_seconds", "Duration of weight updates. There are none: tandem swap replaces weights.", "operation", kWeightUpdates, DevCallBuckets()};
};

// Series of vLLM's /v1/realtime. Always 0: there is no such route.
struct WebSocketMetrics {
  explicit WebSocketMetrics(const MetricScope& scope) : in(scope) {}
  const MetricScope in;
  Gauge connections_active{in, "vllm:websocket_connections_active", "Open WebSockets. Always 0: there is no /v1/realtime."};
  Counter connections{in, "vllm:websocket_connections_total", "WebSockets opened. Always 0: there is no /v1/realtime."};
  Histogram connection_duration{in, "vllm:websocket_connection_duration_seconds", "How long WebSockets were open. There are none: there is no /v1/realtime.", WebSocketBuckets()};
};
// clang-format on

struct HttpSample {
  std::string_view handler;  // the route's path, or "none"
  std::string_view method;
  int status = 0;
  double request_bytes = 0;
  double response_bytes = 0;
  double duration_s = 0;
};

struct MetricsOptions {
  std::string model_name;
  int num_engines = 1;
  int first_rank = 0;  // the label of the first engine
  int64_t max_model_len = 32768;
  bool kv_cache_metrics = false;  // whether the residency series exist
  bool dev_mode = false;          // whether DevMetrics exist
  bool show_model_series = true;  // false: only the http_ and process_ series are shown
  bool show_hidden = false;       // retired names too (hidden_metrics.h)
  bool show_deprecated = true;    // names that will retire
  BucketFamilies buckets = {};
};

class Metrics {
 public:
  explicit Metrics(MetricsOptions options);
  ~Metrics();
  Metrics(const Metrics&) = delete;

  // The exposition text, with the process's own series. Any thread.
  std::string Scrape(MetricsFormat format = MetricsFormat::kText) const;
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";
  static constexpr std::string_view kOpenMetricsContentType =
      "application/openmetrics-text; version=1.0.0; charset=utf-8";

  // For the frontend that takes over: what counters and histograms have counted. With the first
  // call the pages become those of this moment, or who reads them here and then there would see
  // numbers fall. Further calls have what was counted since the one before, of requests alone.
  // Empty: nothing. One call at a time.
  std::string HandOverCounts();
  // What another frontend has handed over. Series of engines and models that are not here are left
  // out. Failure: INVALID_ARGUMENT, and nothing is added.
  Status AddCounts(std::string_view handed_over);

  EngineMetrics& engine(int index) { return *engines_[static_cast<size_t>(index)]; }
  int num_engines() const { return static_cast<int>(engines_.size()); }
  // The label of an engine.
  int RankOf(int engine_index) const { return options_.first_rank + engine_index; }
  FrontendMetrics& frontend() { return *frontend_; }
  DevMetrics& dev();  // REQUIRES: dev_mode

  // The model's length, once an engine has reported it. Any thread.
  void SetMaxModelLen(int64_t max_model_len) { max_model_len_ = max_model_len; }
  // The engine speculates with this many drafts: its series of drafts appear. First shard.
  void ShowDrafts(int engine_index, int64_t num_positions);
  // What an engine reports with a step: gauges are set, counts since its last report are added.
  void Record(int engine_index, const wire::SchedulerStats& stats);
  void Record(const HttpSample& sample);
  // What an engine's process reports of itself. One call at a time.
  void RecordProcess(int engine_index, const ProcessStats& stats,
                     const std::map<std::string, double>& startup_s = {});  // by phase
  SleepLevels& sleep_levels() { return *sleep_levels_; }
  // vllm:cache_config_info, once the engine has reported it: a constant 1 with the facts as labels.
  // A restarted engine's facts replace the earlier ones. First shard.
  void SetCacheConfig(int engine_index, const MetricLabels& labels);
  // First shard.
  OffloadMetrics& offload(int engine_index) { return offload_[static_cast<size_t>(engine_index)]; }
  AdapterInfo& adapter_info() { return *adapter_info_; }

 private:
  void RecordEvictions(int engine_index, const std::vector<wire::KvCacheEvictionEvent>& evictions);
  const Exemplars* ExemplarsOf(const std::string& family, const std::string& engine) const;
  void TrimTokenBounds(std::vector<prometheus::MetricFamily>* families) const;
  std::string MakePage(MetricsFormat format) const;
  bool IsOfThisServer(const MetricLabels& labels) const;

  const MetricsOptions options_;
  std::atomic<int64_t> max_model_len_;
  std::unique_ptr<prometheus::Registry> registry_;
  std::vector<std::unique_ptr<EngineMetrics>> engines_;
  std::unique_ptr<SleepLevels> sleep_levels_;
  std::vector<std::unique_ptr<KvResidencyMetrics>> residency_;  // of each engine, or empty
  std::unique_ptr<FrontendMetrics> frontend_;
  std::unique_ptr<DevMetrics> dev_;  // or null
  std::unique_ptr<WebSocketMetrics> web_sockets_;
  std::vector<HitRateWindow> hit_rates_;          // of each engine; first shard
  std::vector<OffloadMetrics> offload_;           // of each engine
  std::vector<prometheus::Gauge*> cache_config_;  // of each engine, or null
  std::unique_ptr<AdapterInfo> adapter_info_;
  struct HttpFamilies;
  std::unique_ptr<HttpFamilies> http_;
  struct HandedOver;
  std::unique_ptr<HandedOver> handed_over_;
  std::atomic<bool> is_handed_over_{false};  // handed_over_ has the pages
};

}  // namespace tandem
