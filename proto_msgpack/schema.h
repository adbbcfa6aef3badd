#pragma once

// Everything that crosses between the two processes, in wire order: vLLM 0.33's engine protocol.
// Array records carry each field's index, map records list keys in the order they are sent.
// Thread: plain values, no sharing. Units: seconds; *_timestamp and timestamp are CLOCK_MONOTONIC
// of the process that stamped them, arrival_time is Unix time of the frontend. nil on the wire is
// an empty optional, Rare or RawValue; where a comment notes it, an empty list.
//
// What Tandem adds goes into utility calls or, as one map {"tandem": {...}}, at the tail of an
// array record. The tail is sent only when one of its fields is set and only to an engine whose
// READY has tandem_version, so a foreign engine gets vLLM's bytes. A reader finds the map by its
// key and skips any other tail. Frontends get no tail: vllm-rs takes a longer EngineCoreOutputs for
// the death of the engine.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/ids.h"

namespace tandem::wire {

// One packed msgpack value that is carried without being read; empty means nil.
struct RawValue {
  std::string packed;

  bool is_nil() const { return packed.empty(); }
  friend bool operator==(const RawValue&, const RawValue&) = default;
};

// An optional that costs one pointer when absent: most fields of an output record are absent, and
// there is one record per running request and step.
template <class T>
class Rare {
 public:
  Rare() = default;
  Rare(T value) : value_(std::make_unique<T>(std::move(value))) {}  // NOLINT
  Rare(const Rare& other) : value_(other.value_ ? std::make_unique<T>(*other.value_) : nullptr) {}
  Rare(Rare&&) noexcept = default;
  Rare& operator=(const Rare& other) {
    value_ = other.value_ ? std::make_unique<T>(*other.value_) : nullptr;
    return *this;
  }
  Rare& operator=(Rare&&) noexcept = default;
  ~Rare() = default;

  bool has_value() const { return value_ != nullptr; }
  explicit operator bool() const { return has_value(); }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return value_.get(); }
  const T* operator->() const { return value_.get(); }
  T& emplace() {
    value_ = std::make_unique<T>();
    return *value_;
  }
  void reset() { value_.reset(); }
  friend bool operator==(const Rare& a, const Rare& b) {
    return a.has_value() == b.has_value() && (!a.has_value() || *a == *b);
  }

 private:
  std::unique_ptr<T> value_;
};

using CountsByName = std::vector<std::pair<std::string, int64_t>>;

// ---- frontend → engine ----

enum class RequestType : uint8_t {  // the one byte of an input message's first frame
  kAdd = 0,
  kAbort = 1,
  kStartDpWave = 2,
  kUtility = 3,
};

enum class OutputKind : uint8_t { kCumulative = 0, kDelta = 1, kFinalOnly = 2 };

// Ends a request whose last tokens repeat a pattern min_count times.
struct RepetitionDetection {  // map
  int32_t max_pattern_size = 0;
  int32_t min_pattern_size = 0;
  int32_t min_count = 0;

  friend bool operator==(const RepetitionDetection&, const RepetitionDetection&) = default;
};

// What an output must be: exactly one of json, regex, choice, grammar, json_object and
// structural_tag, and how JSON may be spelled.
struct StructuredOutputs {  // map, every key always sent
  RawValue json;            // a JSON schema: its text as a string, or a map
  std::optional<std::string> regex;
  std::optional<std::vector<std::string>> choice;
  std::optional<std::string> grammar;  // EBNF
  std::optional<bool> json_object;     // any JSON object
  bool disable_any_whitespace = false;
  bool disable_additional_properties = false;
  std::optional<std::string> whitespace_pattern;  // between the tokens of JSON
  std::optional<std::string> structural_tag;      // JSON text
  std::optional<std::string> backend;             // "_backend": the library that an engine uses
  bool backend_was_auto = false;                  // "_backend_was_auto"

  friend bool operator==(const StructuredOutputs&, const StructuredOutputs&) = default;
};

// A map; keys equal to their default are not sent, except stop, stop_token_ids and bad_words.
struct SamplingParams {
  int32_t n = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  double repetition_penalty = 1;
  double temperature = 1;
  std::optional<bool> watermarking;
  double top_p = 1;
  int32_t top_k = 0;  // 0 or -1: the whole vocabulary
  double min_p = 0;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;  // checked in the frontend; sent for foreign engines
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  int32_t max_tokens = 16;
  int32_t min_tokens = 0;
  std::optional<int32_t> logprobs;         // -1: the whole vocabulary
  std::optional<int32_t> prompt_logprobs;  // -1: the whole vocabulary
  RawValue prompt_logprob_token_ids;       // ndarray
  std::optional<int32_t> prompt_logprob_start;
  std::vector<TokenId> logprob_token_ids;  // empty: nil
  bool flat_logprobs = false;
  bool detokenize = true;
  bool skip_special_tokens = true;
  bool spaces_between_special_tokens = true;
  bool include_stop_str_in_output = false;
  OutputKind output_kind = OutputKind::kCumulative;
  std::optional<int32_t> stream_interval;
  bool skip_clone = false;
  int32_t output_text_buffer_length = 0;
  std::optional<TokenId> eos_token_id;      // "_eos_token_id"; absent when ignore_eos
  std::vector<TokenId> all_stop_token_ids;  // "_all_stop_token_ids": EOS and stop ids, for
                                            // min_tokens
  bool watermarking_skipped = false;        // "_watermarking_skipped"
  Rare<StructuredOutputs> structured_outputs;
  std::vector<std::pair<TokenId, double>> logit_bias;  // map; empty: nil
  std::vector<TokenId> allowed_token_ids;              // empty: nil
  RawValue extra_args;                                 // map; holds kv_transfer_params
  std::vector<std::string> bad_words;
  std::vector<std::vector<TokenId>> bad_words_token_ids;  // "_bad_words_token_ids"; empty: nil
  std::optional<bool> skip_reading_prefix_cache;  // frontends send it; true with prompt_logprobs
  std::optional<int32_t> thinking_token_budget;
  std::optional<RepetitionDetection> repetition_detection;
  int32_t routed_experts_prompt_start = 0;
  RawValue trace_decode_token_ids;

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

// How a request's reasoning looks in tokens. An engine has no tokenizer.
struct ReasoningMarks {  // map
  std::vector<TokenId> begin;
  std::vector<TokenId> end;
  // Ends the reasoning as well, and is the beginning of the answer.
  std::vector<TokenId> tool_call;
  // What is written when thinking_token_budget is used up.
  std::vector<TokenId> forced_end;

  friend bool operator==(const ReasoningMarks&, const ReasoningMarks&) = default;
};

// Tandem's own fields of a request.
struct OwnRequestFields {  // map
  // The last tokens of the prompt that are outputs of an earlier run of this request. It goes on
  // from there: lengths, penalties, draws and usage count from the prompt before them.
  int32_t num_prior_output_tokens = 0;
  // Sent where they matter: with thinking_token_budget, and with structured_outputs that begin
  // after the reasoning, which is when reasoning_ended is false.
  Rare<ReasoningMarks> reasoning;

  friend bool operator==(const OwnRequestFields&, const OwnRequestFields&) = default;
};

struct EngineCoreRequest {                     // array of 22, and the tail
  RequestId request_id;                        // 0: internal id, "<external id>-<8 hex>"
  std::vector<TokenId> prompt_token_ids;       // 1: nil when prompt_embeds is set
  RawValue mm_features;                        // 2
  SamplingParams sampling_params;              // 3: nil when pooling_params is set
  RawValue pooling_params;                     // 4: array
  double arrival_time = 0;                     // 5
  RawValue lora_request;                       // 6: array
  std::optional<std::string> cache_salt;       // 7
  std::optional<int32_t> data_parallel_rank;   // 8
  RawValue prompt_embeds;                      // 9: tensor
  RawValue prompt_is_token_ids;                // 10
  int32_t client_index = 0;                    // 11: whose output socket gets the outputs
  int32_t current_wave = 0;                    // 12
  int64_t priority = 0;                        // 13: lower runs first under priority scheduling
  RawValue trace_headers;                      // 14: map
  bool resumable = false;                      // 15
  std::optional<std::string> external_req_id;  // 16
  std::optional<bool> reasoning_ended;         // 17
  RawValue reasoning_parser_kwargs;            // 18: map
  bool abort_immediately = false;              // 19
  std::optional<std::string> session_id;       // 20
  RawValue kv_hints;                           // 21: map
  OwnRequestFields own;                        // tail

  std::vector<std::string> aux_frames;  // frames the raw fields point into; index 0 is frame 1

  friend bool operator==(const EngineCoreRequest&, const EngineCoreRequest&) = default;
};

using AbortRequest = std::vector<RequestId>;  // array of internal ids

struct StartDpWave {                 // array of 2
  int64_t wave = 0;                  // 0
  int32_t exclude_engine_index = 0;  // 1

  friend bool operator==(const StartDpWave&, const StartDpWave&) = default;
};

struct UtilityRequest {      // array of 4
  int32_t client_index = 0;  // 0
  uint64_t call_id = 0;      // 1: the full 64 bits are in use
  std::string method;        // 2
  RawValue args;             // 3: array; empty: no arguments

  friend bool operator==(const UtilityRequest&, const UtilityRequest&) = default;
};

// A frontend client is gone: its requests are dropped and nothing more is sent to it. Not a
// message; the engine's wire thread makes it.
struct ClientLost {
  int32_t client_index = 0;

  friend bool operator==(const ClientLost&, const ClientLost&) = default;
};

// A decoded message to the engine.
using EngineInput =
    std::variant<EngineCoreRequest, AbortRequest, UtilityRequest, StartDpWave, ClientLost>;

// ---- engine → frontend ----

enum class FinishReason : uint8_t {
  kStop = 0,
  kLength = 1,
  kAbort = 2,
  kError = 3,
  kRepetition = 4
};

constexpr std::array<std::string_view, 5> kFinishReasonNames = {"stop", "length", "abort", "error",
                                                                "repetition"};
constexpr std::string_view FinishReasonName(FinishReason reason) {
  return kFinishReasonNames[static_cast<size_t>(reason)];
}

// What a request is doing in the engine, with vLLM's names and numbers. Never sent; the names
// appear in logs and debuggers.
enum class RequestStatus : uint8_t {
  kWaiting = 1,
  kWaitingForStructuredOutputGrammar = 2,
  kWaitingForRemoteKvs = 3,
  kWaitingForStreamingReq = 4,
  kRunning = 5,
  kPreempted = 6,
  kFinishedStopped = 7,
  kFinishedLengthCapped = 8,
  kFinishedAborted = 9,
  kFinishedIgnored = 10,
  kFinishedError = 11,
  kFinishedRepetition = 12,
};

constexpr std::array<std::string_view, 13> kRequestStatusNames = {
    "",
    "WAITING",
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
    "WAITING_FOR_REMOTE_KVS",
    "WAITING_FOR_STREAMING_REQ",
    "RUNNING",
    "PREEMPTED",
    "FINISHED_STOPPED",
    "FINISHED_LENGTH_CAPPED",
    "FINISHED_ABORTED",
    "FINISHED_IGNORED",
    "FINISHED_ERROR",
    "FINISHED_REPETITION"};
constexpr std::string_view RequestStatusName(RequestStatus status) {
  return kRequestStatusNames[static_cast<size_t>(status)];
}

enum class EventType : uint8_t { kQueued = 1, kScheduled = 2, kPreempted = 3 };

struct EngineCoreEvent {  // map
  EventType type = EventType::kQueued;
  double timestamp = 0;  // engine-monotonic

  friend bool operator==(const EngineCoreEvent&, const EngineCoreEvent&) = default;
};

// Sent with a request's first output only. Counts are tokens of the prompt.
struct PrefillStats {  // map
  int64_t num_prompt_tokens = 0;
  int64_t num_computed_tokens = 0;  // prompt tokens that were not in the cache
  int64_t num_cached_tokens = 0;    // local + external
  int64_t num_local_cached_tokens = 0;
  int64_t num_external_cached_tokens = 0;
  int64_t num_cache_creation_tokens = 0;

  friend bool operator==(const PrefillStats&, const PrefillStats&) = default;
};

// Logprobs of num_rows positions, row-major: in each row the sampled (or prompt) token first, then
// the top num_columns - 1. LogprobsLists (an array of 4 ndarrays) for sampled tokens and
// LogprobsTensors (an array of 5 tensors) for prompt tokens differ only in encoding.
struct LogprobsRows {
  int32_t num_rows = 0;
  int32_t num_columns = 0;
  std::vector<TokenId> token_ids;  // 0: [num_rows, num_columns]
  std::vector<float> logprobs;     // 1: [num_rows, num_columns]
  std::vector<int64_t> ranks;      // 2: [num_rows], rank of the first column's token, from 1

  friend bool operator==(const LogprobsRows&, const LogprobsRows&) = default;
};

struct EngineCoreError {  // map
  std::string code;       // one of the kError* words below, or a foreign engine's
  std::string message;
  bool retryable = false;

  friend bool operator==(const EngineCoreError&, const EngineCoreError&) = default;
};
constexpr std::string_view kErrorValidation = "validation_error";
constexpr std::string_view kErrorEnginePaused = "engine_paused";
constexpr std::string_view kErrorInternal = "internal_error";

using StopReason = std::variant<std::monostate, int64_t, std::string>;  // nil, token id, text

struct EngineCoreOutput {                     // array of 19
  RequestId request_id;                       // 0
  std::vector<TokenId> new_token_ids;         // 1
  Rare<LogprobsRows> new_logprobs;            // 2: LogprobsLists
  Rare<LogprobsRows> new_prompt_logprobs;     // 3: LogprobsTensors
  Rare<RawValue> pooling_output;              // 4: tensor
  std::optional<FinishReason> finish_reason;  // 5
  StopReason stop_reason;                     // 6
  std::vector<EngineCoreEvent> events;        // 7: empty: nil
  Rare<RawValue> kv_transfer_params;          // 8: map
  Rare<RawValue> ec_transfer_params;          // 9: map
  Rare<RawValue> trace_headers;               // 10: map
  Rare<PrefillStats> prefill_stats;           // 11
  Rare<RawValue> routed_experts;              // 12: ndarray
  int32_t num_nans_in_logits = 0;             // 13
  Rare<RawValue> mm_cache_miss_hashes;        // 14: array
  Rare<RawValue> new_sampling_mask;           // 15
  Rare<RawValue> spec_decode_metrics;         // 16: map
  Rare<RawValue> prompt_token_id_logprobs;    // 17: tensor
  Rare<EngineCoreError> error;                // 18

  bool finished() const { return finish_reason.has_value(); }
  // Resets the record, keeping the capacity of id, tokens and events.
  void Clear() {
    EngineCoreOutput empty;
    empty.request_id.swap(request_id);
    empty.new_token_ids.swap(new_token_ids);
    empty.events.swap(events);
    empty.request_id.clear();
    empty.new_token_ids.clear();
    empty.events.clear();
    *this = std::move(empty);
  }
  friend bool operator==(const EngineCoreOutput&, const EngineCoreOutput&) = default;
};

// Counts since the previous stats message. queries and hits are tokens.
struct PrefixCacheStats {  // map, every key always sent
  bool reset = false;
  int64_t requests = 0;
  int64_t queries = 0;
  int64_t hits = 0;
  int64_t preempted_requests = 0;
  int64_t preempted_queries = 0;
  int64_t preempted_hits = 0;
  CountsByName hits_by_source;

  friend bool operator==(const PrefixCacheStats&, const PrefixCacheStats&) = default;
};

struct KvCacheEvictionEvent {  // map
  double lifetime_seconds = 0;
  double idle_seconds = 0;
  std::vector<double> reuse_gaps_seconds;

  friend bool operator==(const KvCacheEvictionEvent&, const KvCacheEvictionEvent&) = default;
};

struct SpecDecodingStats {      // map, every key always sent
  int64_t num_spec_tokens = 0;  // most drafts of a request in a step
  int64_t num_drafts = 0;       // times that a request had drafts
  int64_t num_draft_tokens = 0;
  int64_t num_accepted_tokens = 0;
  std::vector<int64_t> num_accepted_tokens_per_pos;
  std::vector<int64_t> num_draft_tokens_per_pos;

  friend bool operator==(const SpecDecodingStats&, const SpecDecodingStats&) = default;
};

struct SchedulerStats {  // map, every key always sent
  int64_t num_running_reqs = 0;
  int64_t num_waiting_reqs = 0;
  int64_t num_skipped_waiting_reqs = 0;
  CountsByName num_kv_fetch_reqs_by_stage;
  int64_t step_counter = 0;
  int64_t current_wave = 0;
  double kv_cache_usage = 0;  // share of blocks in use, 0 to 1
  RawValue iteration_details;
  PrefixCacheStats prefix_cache_stats;
  RawValue connector_prefix_cache_stats;
  std::vector<KvCacheEvictionEvent> kv_cache_eviction_events;
  std::optional<SpecDecodingStats> spec_decoding_stats;
  RawValue kv_connector_stats;
  RawValue ec_connector_stats;
  CountsByName waiting_lora_adapters;
  CountsByName running_lora_adapters;
  RawValue cudagraph_stats;
  RawValue perf_stats;

  friend bool operator==(const SchedulerStats&, const SchedulerStats&) = default;
};

struct UtilityOutput {                         // array of 3
  uint64_t call_id = 0;                        // 0: the request's; -1 and -2 (notices) wrap around
  std::optional<std::string> failure_message;  // 1
  RawValue result;  // 2: the value inside [nil, value]; empty: nil. Not sent when it failed

  friend bool operator==(const UtilityOutput&, const UtilityOutput&) = default;
};

// One message is a request batch (with stats or alone), a utility reply, or a DP control word.
struct EngineCoreOutputs {                        // array of 9
  int32_t engine_index = 0;                       // 0
  std::vector<EngineCoreOutput> outputs;          // 1
  std::optional<SchedulerStats> scheduler_stats;  // 2
  double timestamp = 0;                           // 3: engine-monotonic, always sent
  std::optional<UtilityOutput> utility_output;    // 4
  std::vector<RequestId> finished_requests;       // 5: also client aborts; empty: nil
  std::optional<int64_t> wave_complete;           // 6: coordinator socket only
  std::optional<int64_t> start_wave;              // 7: coordinator socket only
  std::optional<std::string> weight_version;      // 8

  // vllm-rs takes an empty message for the engine's death, so none is ever sent.
  bool is_empty() const {
    return outputs.empty() && !scheduler_stats && !utility_output && finished_requests.empty() &&
           !wave_complete && !start_wave;
  }
  friend bool operator==(const EngineCoreOutputs&, const EngineCoreOutputs&) = default;
};

// The single frame that a dying engine sends on every output socket.
constexpr std::string_view kEngineCoreDead = "ENGINE_CORE_DEAD";

// ---- start-up ----

constexpr std::string_view kStatusHello = "HELLO";
constexpr std::string_view kStatusReady = "READY";

struct EngineStatus {  // map, engine → handshake socket: HELLO, later READY
  std::string status;
  bool local = true;
  bool headless = false;
  std::optional<std::string> parallel_config_hash;  // READY of a data-parallel engine
  bool takes_over = false;                          // ours: see EngineEndpointOptions

  friend bool operator==(const EngineStatus&, const EngineStatus&) = default;
};

struct EngineAddresses {  // map; one input and one output per client, position = client_index
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::optional<std::string> coordinator_input;
  std::optional<std::string> coordinator_output;
  std::optional<std::string> frontend_stats_publish_address;

  friend bool operator==(const EngineAddresses&, const EngineAddresses&) = default;
};

struct InitMessage {  // map, frontend → engine, the reply to HELLO
  EngineAddresses addresses;
  RawValue parallel_config;  // map; empty: {}
  // Ours, to an engine that takes over: its number from now on, in place of its index.
  std::optional<int32_t> seat;

  friend bool operator==(const InitMessage&, const InitMessage&) = default;
};

// Whose program the other side is. Only Tandem is sent Tandem's own fields.
enum class Peer { kForeign, kTandem };

// Map, engine → each input socket; its arrival also teaches the frontend's ROUTER the identity.
struct EngineCoreReadyResponse {
  int64_t max_model_len = 0;
  int64_t num_gpu_blocks = 0;
  int64_t block_size = 0;
  std::optional<std::string> dp_stats_address;
  std::string dtype = "bfloat16";  // "float16", "bfloat16" or "float32"
  std::string vllm_version = "0.33.0";
  int32_t world_size = 1;
  int32_t data_parallel_size = 1;
  int32_t tensor_parallel_size = 1;
  int32_t pipeline_parallel_size = 1;
  int32_t decode_context_parallel_size = 1;
  int32_t data_parallel_rank = 0;
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  std::string instance_id;
  bool supports_lora = false;
  int32_t max_loras = 0;
  std::optional<int64_t> mamba_block_size;
  std::optional<int64_t> kv_cache_size_tokens;
  std::optional<double> kv_cache_max_concurrency;
  RawValue kv_events_config;  // map
  std::optional<std::string> weight_transfer_backend;
  bool enable_sleep_mode = false;
  bool supports_draft_weight_updates = false;
  std::optional<int64_t> effective_attention_block_size;
  int32_t coord_store_port = 0;
  std::optional<std::string> coordinator_input_address;
  std::optional<std::string> coordinator_output_address;
  // Ours, left out when absent. Other frontends ignore unknown keys.
  std::optional<std::string> tandem_version;
  std::optional<std::string> tokenizer_hash;  // of the file in the model's folder
  // The bits of a response depend on its request alone, not on what else is in its steps.
  std::optional<bool> batch_invariant;

  Peer peer() const { return tandem_version ? Peer::kTandem : Peer::kForeign; }
  friend bool operator==(const EngineCoreReadyResponse&, const EngineCoreReadyResponse&) = default;
};

}  // namespace tandem::wire
