#pragma once

// Every record of schema.h, in wire order: one table for both encoding and decoding. A new field
// gets one row here. Included by the codec only; compile-time data.

#include <cstdint>
#include <string_view>
#include <tuple>

#include "proto_msgpack/lora_request.h"
#include "proto_msgpack/pooling_params.h"
#include "proto_msgpack/request_spec_decode_metrics.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

constexpr int8_t kExtRawView = 3;  // msgpack Ext type of an inline array

// How a C++ value differs from its form on the wire.
enum class Form {
  kPlain,
  kNilIfEmpty,     // a list: nil when empty
  kArrayIfEmpty,   // a raw value: [] when empty
  kMapIfEmpty,     // a raw value: {} when empty
  kNotIfPooling,   // nil in a pooling request
  kTensors,        // LogprobsTensors, not LogprobsLists
  kTensor,         // a raw value: a tensor, whose data a reader takes out of its frame
  kUtilityResult,  // [type, value]
};

template <auto kMember, Form kForm = Form::kPlain>
struct At {};  // one element of an array record

enum class Sent { kAlways, kUnlessDefault };

template <auto kMember, Sent kSent = Sent::kUnlessDefault, Form kForm = Form::kPlain>
struct Key {  // one entry of a map record
  std::string_view name;
};

template <class T>
struct ArrayOf;  // specialised: `using Fields = std::tuple<At<…>…>; kRequired`
template <class T>
struct MapOf;  // specialised: `static constexpr auto kKeys = std::tuple(Key<…>{"…"}…)`
// Tandem's own fields, a map record that is a member of T: specialised for an array record that has
// a tail: `static constexpr auto kMember = &T::own`.
template <class T>
struct TailOf;
constexpr std::string_view kTailKey = "tandem";

template <class T>
concept ArrayRecord = requires {
  typename ArrayOf<T>::Fields;
};
template <class T>
concept MapRecord = requires {
  MapOf<T>::kKeys;
};

template <class T>
concept HasTail = requires {
  TailOf<T>::kMember;
};

template <>
struct MapOf<RepetitionDetection> {
  using T = RepetitionDetection;
  static constexpr auto kKeys =
      std::tuple(Key<&T::max_pattern_size, Sent::kAlways>{"max_pattern_size"},
                 Key<&T::min_pattern_size, Sent::kAlways>{"min_pattern_size"},
                 Key<&T::min_count, Sent::kAlways>{"min_count"});
};

template <>
struct MapOf<StructuredOutputs> {
  using T = StructuredOutputs;
  static constexpr auto kKeys = std::tuple(
      Key<&T::json, Sent::kAlways>{"json"}, Key<&T::regex, Sent::kAlways>{"regex"},
      Key<&T::choice, Sent::kAlways>{"choice"}, Key<&T::grammar, Sent::kAlways>{"grammar"},
      Key<&T::json_object, Sent::kAlways>{"json_object"},
      Key<&T::disable_any_whitespace, Sent::kAlways>{"disable_any_whitespace"},
      Key<&T::disable_additional_properties, Sent::kAlways>{"disable_additional_properties"},
      Key<&T::whitespace_pattern, Sent::kAlways>{"whitespace_pattern"},
      Key<&T::structural_tag, Sent::kAlways>{"structural_tag"},
      Key<&T::backend, Sent::kAlways>{"_backend"},
      Key<&T::backend_was_auto, Sent::kAlways>{"_backend_was_auto"});
};

template <>
struct MapOf<SamplingParams> {
  using T = SamplingParams;
  static constexpr auto kKeys = std::tuple(
      Key<&T::n>{"n"}, Key<&T::presence_penalty>{"presence_penalty"},
      Key<&T::frequency_penalty>{"frequency_penalty"},
      Key<&T::repetition_penalty>{"repetition_penalty"}, Key<&T::temperature>{"temperature"},
      Key<&T::watermarking>{"watermarking"}, Key<&T::top_p>{"top_p"}, Key<&T::top_k>{"top_k"},
      Key<&T::min_p>{"min_p"}, Key<&T::seed>{"seed"}, Key<&T::stop, Sent::kAlways>{"stop"},
      Key<&T::stop_token_ids, Sent::kAlways>{"stop_token_ids"}, Key<&T::ignore_eos>{"ignore_eos"},
      Key<&T::max_tokens>{"max_tokens"}, Key<&T::min_tokens>{"min_tokens"},
      Key<&T::logprobs>{"logprobs"}, Key<&T::prompt_logprobs>{"prompt_logprobs"},
      Key<&T::prompt_logprob_token_ids>{"prompt_logprob_token_ids"},
      Key<&T::prompt_logprob_start>{"prompt_logprob_start"},
      Key<&T::logprob_token_ids>{"logprob_token_ids"}, Key<&T::flat_logprobs>{"flat_logprobs"},
      Key<&T::detokenize>{"detokenize"}, Key<&T::skip_special_tokens>{"skip_special_tokens"},
      Key<&T::spaces_between_special_tokens>{"spaces_between_special_tokens"},
      Key<&T::include_stop_str_in_output>{"include_stop_str_in_output"},
      Key<&T::output_kind>{"output_kind"}, Key<&T::stream_interval>{"stream_interval"},
      Key<&T::skip_clone>{"skip_clone"},
      Key<&T::output_text_buffer_length>{"output_text_buffer_length"},
      Key<&T::eos_token_id>{"_eos_token_id"}, Key<&T::all_stop_token_ids>{"_all_stop_token_ids"},
      Key<&T::watermarking_skipped>{"_watermarking_skipped"},
      Key<&T::structured_outputs>{"structured_outputs"}, Key<&T::logit_bias>{"logit_bias"},
      Key<&T::allowed_token_ids>{"allowed_token_ids"}, Key<&T::extra_args>{"extra_args"},
      Key<&T::bad_words, Sent::kAlways>{"bad_words"},
      Key<&T::bad_words_token_ids>{"_bad_words_token_ids"},
      Key<&T::skip_reading_prefix_cache>{"skip_reading_prefix_cache"},
      Key<&T::thinking_token_budget>{"thinking_token_budget"},
      Key<&T::repetition_detection>{"repetition_detection"},
      Key<&T::routed_experts_prompt_start>{"routed_experts_prompt_start"},
      Key<&T::trace_decode_token_ids>{"trace_decode_token_ids"});
};

template <>
struct MapOf<ReasoningMarks> {
  using T = ReasoningMarks;
  static constexpr auto kKeys =
      std::tuple(Key<&T::begin>{"begin"}, Key<&T::end>{"end"}, Key<&T::tool_call>{"tool_call"},
                 Key<&T::forced_end>{"forced_end"});
};

template <>
struct MapOf<OwnRequestFields> {
  using T = OwnRequestFields;
  static constexpr auto kKeys = std::tuple(
      Key<&T::num_prior_output_tokens>{"num_prior_output_tokens"}, Key<&T::reasoning>{"reasoning"});
};

template <>
struct TailOf<EngineCoreRequest> {
  static constexpr auto kMember = &EngineCoreRequest::own;
};

template <>
struct ArrayOf<EngineCoreRequest> {
  using T = EngineCoreRequest;
  static constexpr uint32_t kRequired = 9;
  using Fields =
      std::tuple<At<&T::request_id>, At<&T::prompt_token_ids, Form::kNilIfEmpty>,
                 At<&T::mm_features>, At<&T::sampling_params, Form::kNotIfPooling>,
                 At<&T::pooling_params>, At<&T::arrival_time>, At<&T::lora_request>,
                 At<&T::cache_salt>, At<&T::data_parallel_rank>, At<&T::prompt_embeds>,
                 At<&T::prompt_is_token_ids>, At<&T::client_index>, At<&T::current_wave>,
                 At<&T::priority>, At<&T::trace_headers>, At<&T::resumable>,
                 At<&T::external_req_id>, At<&T::reasoning_ended>, At<&T::reasoning_parser_kwargs>,
                 At<&T::abort_immediately>, At<&T::session_id>, At<&T::kv_hints>>;
};

// vLLM's, in PoolingParams::extra_kwargs.
constexpr std::string_view kTokenTypesKey = "compressed_token_type_ids";

template <>
struct ArrayOf<PoolingParams> {
  using T = PoolingParams;
  static constexpr uint32_t kRequired = 0;
  using Fields =
      std::tuple<At<&T::use_activation>, At<&T::dimensions>, At<&T::step_tag_id>,
                 At<&T::returned_token_ids>, At<&T::task>, At<&T::requires_token_ids>,
                 At<&T::skip_reading_prefix_cache>, At<&T::late_interaction_params>,
                 At<&T::extra_kwargs>, At<&T::output_kind>, At<&T::late_chunking_params>>;
};

template <>
struct ArrayOf<LoraRequest> {
  using T = LoraRequest;
  static constexpr uint32_t kRequired = 3;
  using Fields = std::tuple<At<&T::name>, At<&T::id>, At<&T::path>, At<&T::base_model_name>,
                            At<&T::load_inplace>, At<&T::is_3d_lora_weight>>;
};

template <>
struct ArrayOf<StartDpWave> {
  using T = StartDpWave;
  static constexpr uint32_t kRequired = 2;
  using Fields = std::tuple<At<&T::wave>, At<&T::exclude_engine_index>>;
};

template <>
struct ArrayOf<UtilityRequest> {
  using T = UtilityRequest;
  static constexpr uint32_t kRequired = 4;
  using Fields = std::tuple<At<&T::client_index>, At<&T::call_id>, At<&T::method>,
                            At<&T::args, Form::kArrayIfEmpty>>;
};

template <>
struct MapOf<EngineCoreEvent> {
  using T = EngineCoreEvent;
  static constexpr auto kKeys = std::tuple(Key<&T::type, Sent::kAlways>{"type"},
                                           Key<&T::timestamp, Sent::kAlways>{"timestamp"});
};

template <>
struct MapOf<PrefillStats> {
  using T = PrefillStats;
  static constexpr auto kKeys =
      std::tuple(Key<&T::num_prompt_tokens, Sent::kAlways>{"num_prompt_tokens"},
                 Key<&T::num_computed_tokens, Sent::kAlways>{"num_computed_tokens"},
                 Key<&T::num_cached_tokens, Sent::kAlways>{"num_cached_tokens"},
                 Key<&T::num_local_cached_tokens, Sent::kAlways>{"num_local_cached_tokens"},
                 Key<&T::num_external_cached_tokens, Sent::kAlways>{"num_external_cached_tokens"},
                 Key<&T::num_cache_creation_tokens, Sent::kAlways>{"num_cache_creation_tokens"});
};

template <>
struct MapOf<EngineCoreError> {
  using T = EngineCoreError;
  static constexpr auto kKeys =
      std::tuple(Key<&T::code, Sent::kAlways>{"code"}, Key<&T::message, Sent::kAlways>{"message"},
                 Key<&T::retryable, Sent::kAlways>{"retryable"});
};

template <>
struct ArrayOf<EngineCoreOutput> {
  using T = EngineCoreOutput;
  static constexpr uint32_t kRequired = 2;
  using Fields =
      std::tuple<At<&T::request_id>, At<&T::new_token_ids>, At<&T::new_logprobs>,
                 At<&T::new_prompt_logprobs, Form::kTensors>, At<&T::pooling_output, Form::kTensor>,
                 At<&T::finish_reason>, At<&T::stop_reason>, At<&T::events, Form::kNilIfEmpty>,
                 At<&T::kv_transfer_params>, At<&T::ec_transfer_params>, At<&T::trace_headers>,
                 At<&T::prefill_stats>, At<&T::routed_experts>, At<&T::num_nans_in_logits>,
                 At<&T::mm_cache_miss_hashes>, At<&T::new_sampling_mask>,
                 At<&T::spec_decode_metrics>, At<&T::prompt_token_id_logprobs, Form::kTensor>,
                 At<&T::error>>;
};

template <>
struct MapOf<PrefixCacheStats> {
  using T = PrefixCacheStats;
  static constexpr auto kKeys = std::tuple(
      Key<&T::reset, Sent::kAlways>{"reset"}, Key<&T::requests, Sent::kAlways>{"requests"},
      Key<&T::queries, Sent::kAlways>{"queries"}, Key<&T::hits, Sent::kAlways>{"hits"},
      Key<&T::preempted_requests, Sent::kAlways>{"preempted_requests"},
      Key<&T::preempted_queries, Sent::kAlways>{"preempted_queries"},
      Key<&T::preempted_hits, Sent::kAlways>{"preempted_hits"},
      Key<&T::hits_by_source, Sent::kAlways>{"hits_by_source"});
};

template <>
struct MapOf<KvCacheEvictionEvent> {
  using T = KvCacheEvictionEvent;
  static constexpr auto kKeys =
      std::tuple(Key<&T::lifetime_seconds, Sent::kAlways>{"lifetime_seconds"},
                 Key<&T::idle_seconds, Sent::kAlways>{"idle_seconds"},
                 Key<&T::reuse_gaps_seconds, Sent::kAlways>{"reuse_gaps_seconds"});
};

template <>
struct MapOf<SpecDecodingStats> {
  using T = SpecDecodingStats;
  static constexpr auto kKeys =
      std::tuple(Key<&T::num_spec_tokens, Sent::kAlways>{"num_spec_tokens"},
                 Key<&T::num_drafts, Sent::kAlways>{"num_drafts"},
                 Key<&T::num_draft_tokens, Sent::kAlways>{"num_draft_tokens"},
                 Key<&T::num_accepted_tokens, Sent::kAlways>{"num_accepted_tokens"},
                 Key<&T::num_accepted_tokens_per_pos, Sent::kAlways>{"num_accepted_tokens_per_pos"},
                 Key<&T::num_draft_tokens_per_pos, Sent::kAlways>{"num_draft_tokens_per_pos"});
};

template <>
struct MapOf<RequestSpecDecodeMetrics> {
  using T = RequestSpecDecodeMetrics;
  static constexpr auto kKeys =
      std::tuple(Key<&T::num_spec_tokens, Sent::kAlways>{"num_spec_tokens"},
                 Key<&T::histogram, Sent::kAlways>{"histogram"},
                 Key<&T::num_draft_tokens, Sent::kAlways>{"num_draft_tokens"},
                 Key<&T::per_step_accepted, Sent::kAlways>{"per_step_accepted"},
                 Key<&T::per_step_drafted, Sent::kAlways>{"per_step_drafted"});
};

template <>
struct MapOf<SchedulerStats> {
  using T = SchedulerStats;
  static constexpr auto kKeys = std::tuple(
      Key<&T::num_running_reqs, Sent::kAlways>{"num_running_reqs"},
      Key<&T::num_waiting_reqs, Sent::kAlways>{"num_waiting_reqs"},
      Key<&T::num_skipped_waiting_reqs, Sent::kAlways>{"num_skipped_waiting_reqs"},
      Key<&T::num_kv_fetch_reqs_by_stage, Sent::kAlways>{"num_kv_fetch_reqs_by_stage"},
      Key<&T::step_counter, Sent::kAlways>{"step_counter"},
      Key<&T::current_wave, Sent::kAlways>{"current_wave"},
      Key<&T::kv_cache_usage, Sent::kAlways>{"kv_cache_usage"},
      Key<&T::iteration_details, Sent::kAlways>{"iteration_details"},
      Key<&T::prefix_cache_stats, Sent::kAlways>{"prefix_cache_stats"},
      Key<&T::connector_prefix_cache_stats, Sent::kAlways>{"connector_prefix_cache_stats"},
      Key<&T::kv_cache_eviction_events, Sent::kAlways>{"kv_cache_eviction_events"},
      Key<&T::spec_decoding_stats, Sent::kAlways>{"spec_decoding_stats"},
      Key<&T::kv_connector_stats, Sent::kAlways>{"kv_connector_stats"},
      Key<&T::ec_connector_stats, Sent::kAlways>{"ec_connector_stats"},
      Key<&T::waiting_lora_adapters, Sent::kAlways>{"waiting_lora_adapters"},
      Key<&T::running_lora_adapters, Sent::kAlways>{"running_lora_adapters"},
      Key<&T::cudagraph_stats, Sent::kAlways>{"cudagraph_stats"},
      Key<&T::perf_stats, Sent::kAlways>{"perf_stats"});
};

template <>
struct ArrayOf<UtilityOutput> {
  using T = UtilityOutput;
  static constexpr uint32_t kRequired = 1;
  using Fields =
      std::tuple<At<&T::call_id>, At<&T::failure_message>, At<&T::result, Form::kUtilityResult>>;
};

template <>
struct ArrayOf<EngineCoreOutputs> {
  using T = EngineCoreOutputs;
  static constexpr uint32_t kRequired = 0;
  using Fields =
      std::tuple<At<&T::engine_index>, At<&T::outputs>, At<&T::scheduler_stats>, At<&T::timestamp>,
                 At<&T::utility_output>, At<&T::finished_requests, Form::kNilIfEmpty>,
                 At<&T::wave_complete>, At<&T::start_wave>, At<&T::weight_version>>;
};

template <>
struct MapOf<EngineStatus> {
  using T = EngineStatus;
  static constexpr auto kKeys =
      std::tuple(Key<&T::status, Sent::kAlways>{"status"}, Key<&T::local, Sent::kAlways>{"local"},
                 Key<&T::headless, Sent::kAlways>{"headless"},
                 Key<&T::parallel_config_hash>{"parallel_config_hash"},
                 Key<&T::takes_over>{"tandem_takes_over"});
};

template <>
struct MapOf<EngineAddresses> {
  using T = EngineAddresses;
  static constexpr auto kKeys = std::tuple(
      Key<&T::inputs, Sent::kAlways>{"inputs"}, Key<&T::outputs, Sent::kAlways>{"outputs"},
      Key<&T::coordinator_input, Sent::kAlways>{"coordinator_input"},
      Key<&T::coordinator_output, Sent::kAlways>{"coordinator_output"},
      Key<&T::frontend_stats_publish_address, Sent::kAlways>{"frontend_stats_publish_address"});
};

template <>
struct MapOf<InitMessage> {
  using T = InitMessage;
  static constexpr auto kKeys =
      std::tuple(Key<&T::addresses, Sent::kAlways>{"addresses"},
                 Key<&T::parallel_config, Sent::kAlways, Form::kMapIfEmpty>{"parallel_config"},
                 Key<&T::seat>{"tandem_seat"});
};

template <>
struct MapOf<EngineCoreReadyResponse> {
  using T = EngineCoreReadyResponse;
  static constexpr auto kKeys = std::tuple(
      Key<&T::max_model_len, Sent::kAlways>{"max_model_len"},
      Key<&T::num_gpu_blocks, Sent::kAlways>{"num_gpu_blocks"},
      Key<&T::block_size, Sent::kAlways>{"block_size"},
      Key<&T::dp_stats_address, Sent::kAlways>{"dp_stats_address"},
      Key<&T::dtype, Sent::kAlways>{"dtype"}, Key<&T::vllm_version, Sent::kAlways>{"vllm_version"},
      Key<&T::world_size, Sent::kAlways>{"world_size"},
      Key<&T::data_parallel_size, Sent::kAlways>{"data_parallel_size"},
      Key<&T::tensor_parallel_size, Sent::kAlways>{"tensor_parallel_size"},
      Key<&T::pipeline_parallel_size, Sent::kAlways>{"pipeline_parallel_size"},
      Key<&T::decode_context_parallel_size, Sent::kAlways>{"decode_context_parallel_size"},
      Key<&T::data_parallel_rank, Sent::kAlways>{"data_parallel_rank"},
      Key<&T::max_num_seqs, Sent::kAlways>{"max_num_seqs"},
      Key<&T::max_num_batched_tokens, Sent::kAlways>{"max_num_batched_tokens"},
      Key<&T::instance_id, Sent::kAlways>{"instance_id"},
      Key<&T::supports_lora, Sent::kAlways>{"supports_lora"},
      Key<&T::max_loras, Sent::kAlways>{"max_loras"},
      Key<&T::mamba_block_size, Sent::kAlways>{"mamba_block_size"},
      Key<&T::kv_cache_size_tokens, Sent::kAlways>{"kv_cache_size_tokens"},
      Key<&T::kv_cache_max_concurrency, Sent::kAlways>{"kv_cache_max_concurrency"},
      Key<&T::kv_events_config, Sent::kAlways>{"kv_events_config"},
      Key<&T::weight_transfer_backend, Sent::kAlways>{"weight_transfer_backend"},
      Key<&T::enable_sleep_mode, Sent::kAlways>{"enable_sleep_mode"},
      Key<&T::supports_draft_weight_updates, Sent::kAlways>{"supports_draft_weight_updates"},
      Key<&T::effective_attention_block_size, Sent::kAlways>{"effective_attention_block_size"},
      Key<&T::coord_store_port, Sent::kAlways>{"coord_store_port"},
      Key<&T::coordinator_input_address, Sent::kAlways>{"coordinator_input_address"},
      Key<&T::coordinator_output_address, Sent::kAlways>{"coordinator_output_address"},
      Key<&T::tandem_version>{"tandem_version"}, Key<&T::tokenizer_hash>{"tandem_tokenizer"},
      Key<&T::batch_invariant>{"tandem_batch_invariant"});
};

}  // namespace tandem::wire
