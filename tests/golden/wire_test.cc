// Every recorded wire vector decodes to its stated values, and our encoding of what vLLM's Python
// classes encode is the same, byte for byte.

#include <map>
#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "tests/support/wire_json.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

using nlohmann::json;

template <class T>
T Value(const json& map, const char* key, T otherwise) {
  return map.contains(key) && !map[key].is_null() ? map[key].get<T>() : otherwise;
}
template <class T>
std::optional<T> Maybe(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<T>();
}
template <class T>
std::optional<T> Maybe(const json& map, const char* key) {
  return map.contains(key) ? Maybe<T>(map[key]) : std::nullopt;
}
json OrNull(const json& map, const char* key) { return map.contains(key) ? map[key] : json(); }

using Ids = std::vector<TokenId>;
using Words = std::vector<std::string>;

void CheckStructuredOutputs(const json& want, const Rare<StructuredOutputs>& got) {
  REQUIRE(got.has_value() == !want.is_null());
  if (!got) return;
  CHECK(ToJson(got->json.packed) == OrNull(want, "json"));
  CHECK(got->regex == Maybe<std::string>(want, "regex"));
  CHECK(got->choice == Maybe<Words>(want, "choice"));
  CHECK(got->grammar == Maybe<std::string>(want, "grammar"));
  CHECK(got->json_object == Maybe<bool>(want, "json_object"));
  CHECK(got->disable_any_whitespace == Value(want, "disable_any_whitespace", false));
  CHECK(got->disable_additional_properties == Value(want, "disable_additional_properties", false));
  CHECK(got->whitespace_pattern == Maybe<std::string>(want, "whitespace_pattern"));
  CHECK(got->structural_tag == Maybe<std::string>(want, "structural_tag"));
  CHECK(got->backend == Maybe<std::string>(want, "_backend"));
  CHECK(got->backend_was_auto == Value(want, "_backend_was_auto", false));
}

void CheckSamplingParams(const json& want, const SamplingParams& got) {
  CHECK(got.n == Value(want, "n", 1));
  CHECK(got.presence_penalty == Value(want, "presence_penalty", 0.0));
  CHECK(got.frequency_penalty == Value(want, "frequency_penalty", 0.0));
  CHECK(got.repetition_penalty == Value(want, "repetition_penalty", 1.0));
  CHECK(got.temperature == Value(want, "temperature", 1.0));
  CHECK(got.watermarking == Maybe<bool>(want, "watermarking"));
  CHECK(got.top_p == Value(want, "top_p", 1.0));
  CHECK(got.top_k == Value(want, "top_k", 0));
  CHECK(got.min_p == Value(want, "min_p", 0.0));
  CHECK(got.seed == Maybe<int64_t>(want, "seed"));
  CHECK(got.stop == Value(want, "stop", Words()));
  CHECK(got.stop_token_ids == Value(want, "stop_token_ids", Ids()));
  CHECK(got.ignore_eos == Value(want, "ignore_eos", false));
  CHECK(got.max_tokens == Value(want, "max_tokens", 16));
  CHECK(got.min_tokens == Value(want, "min_tokens", 0));
  CHECK(got.logprobs == Maybe<int32_t>(want, "logprobs"));
  CHECK(got.prompt_logprobs == Maybe<int32_t>(want, "prompt_logprobs"));
  CHECK(got.logprob_token_ids == Value(want, "logprob_token_ids", Ids()));
  CHECK(got.include_stop_str_in_output == Value(want, "include_stop_str_in_output", false));
  CHECK(static_cast<int>(got.output_kind) == Value(want, "output_kind", 0));
  CHECK(got.stream_interval == Maybe<int32_t>(want, "stream_interval"));
  CHECK(got.skip_clone == Value(want, "skip_clone", false));
  CHECK(got.output_text_buffer_length == Value(want, "output_text_buffer_length", 0));
  CHECK(got.eos_token_id == Maybe<TokenId>(want, "_eos_token_id"));
  CHECK(got.all_stop_token_ids == Value(want, "_all_stop_token_ids", Ids()));
  CheckStructuredOutputs(OrNull(want, "structured_outputs"), got.structured_outputs);
  std::map<std::string, double> bias;
  for (const auto& [token_id, value] : got.logit_bias) bias[std::to_string(token_id)] = value;
  CHECK(bias == Value(want, "logit_bias", std::map<std::string, double>()));
  CHECK(got.allowed_token_ids == Value(want, "allowed_token_ids", Ids()));
  CHECK(ToJson(got.extra_args.packed) == OrNull(want, "extra_args"));
  CHECK(got.bad_words == Value(want, "bad_words", Words()));
  CHECK(got.bad_words_token_ids == Value(want, "_bad_words_token_ids", std::vector<Ids>()));
  CHECK(got.skip_reading_prefix_cache == Maybe<bool>(want, "skip_reading_prefix_cache"));
  CHECK(got.thinking_token_budget == Maybe<int32_t>(want, "thinking_token_budget"));
  CHECK(got.repetition_detection.has_value() == want.contains("repetition_detection"));
  if (got.repetition_detection) {
    const json& map = want["repetition_detection"];
    CHECK(got.repetition_detection->max_pattern_size == map["max_pattern_size"].get<int>());
    CHECK(got.repetition_detection->min_pattern_size == map["min_pattern_size"].get<int>());
    CHECK(got.repetition_detection->min_count == map["min_count"].get<int>());
  }
  for (const auto& [key, value] : want.items()) {
    static const std::string kKnown =
        " n presence_penalty frequency_penalty repetition_penalty temperature watermarking top_p "
        "top_k min_p seed stop stop_token_ids ignore_eos max_tokens min_tokens logprobs "
        "prompt_logprobs logprob_token_ids include_stop_str_in_output output_kind stream_interval "
        "skip_clone output_text_buffer_length _eos_token_id _all_stop_token_ids structured_outputs "
        "logit_bias allowed_token_ids extra_args bad_words _bad_words_token_ids "
        "skip_reading_prefix_cache thinking_token_budget repetition_detection "
        "routed_experts_prompt_start ";
    INFO(key << " has a check above");
    CHECK(kKnown.find(" " + key + " ") != std::string::npos);
  }
}

void CheckRequest(const json& want, const EngineCoreRequest& got) {
  REQUIRE(want.size() == 22);
  CHECK(got.request_id == want[0].get<std::string>());
  CHECK(got.prompt_token_ids == want[1].get<Ids>());
  CHECK(ToJson(got.mm_features.packed) == want[2]);
  CheckSamplingParams(want[3], got.sampling_params);
  CHECK(ToJson(got.pooling_params.packed) == want[4]);
  CHECK(got.arrival_time == want[5].get<double>());
  CHECK(ToJson(got.lora_request.packed) == want[6]);
  CHECK(got.cache_salt == Maybe<std::string>(want[7]));
  CHECK(got.data_parallel_rank == Maybe<int32_t>(want[8]));
  CHECK(ToJson(got.prompt_embeds.packed) == want[9]);
  CHECK(ToJson(got.prompt_is_token_ids.packed) == want[10]);
  CHECK(got.client_index == want[11].get<int>());
  CHECK(got.current_wave == want[12].get<int>());
  CHECK(got.priority == want[13].get<int64_t>());
  CHECK(ToJson(got.trace_headers.packed) == want[14]);
  CHECK(got.resumable == want[15].get<bool>());
  CHECK(got.external_req_id == Maybe<std::string>(want[16]));
  CHECK(got.reasoning_ended == Maybe<bool>(want[17]));
  CHECK(ToJson(got.reasoning_parser_kwargs.packed) == want[18]);
  CHECK(got.abort_immediately == want[19].get<bool>());
  CHECK(got.session_id == Maybe<std::string>(want[20]));
  CHECK(ToJson(got.kv_hints.packed) == want[21]);
}

template <class T>
std::vector<T> Elements(const json& array, const GoldenMessage& message) {
  std::string bytes;
  if (array[2].is_object()) {
    bytes = *HexDecode(array[2]["hex"].get<std::string>());
  } else {
    bytes = message.frames.at(array[2].get<size_t>());
  }
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(elements.data()));
  return elements;
}

void CheckLogprobs(const json& want, const Rare<LogprobsRows>& got, const GoldenMessage& message) {
  REQUIRE(got.has_value() == !want.is_null());
  if (!got) return;
  CHECK(got->num_rows == want[0][1][0].get<int>());
  CHECK(got->num_columns == want[0][1][1].get<int>());
  CHECK(got->token_ids == Elements<TokenId>(want[0], message));
  CHECK(got->logprobs == Elements<float>(want[1], message));
  CHECK(got->ranks == Elements<int64_t>(want[2], message));
}

void CheckRare(const json& want, const Rare<RawValue>& got) {
  CHECK((got ? ToJson(got->packed) : json()) == want);
}

void CheckOutput(const json& want, const EngineCoreOutput& got, const GoldenMessage& message) {
  REQUIRE(want.size() == 19);
  CHECK(got.request_id == want[0].get<std::string>());
  CHECK(got.new_token_ids == want[1].get<Ids>());
  CheckLogprobs(want[2], got.new_logprobs, message);
  CheckLogprobs(want[3], got.new_prompt_logprobs, message);
  CheckRare(want[4], got.pooling_output);
  CHECK(got.finish_reason.has_value() == !want[5].is_null());
  if (got.finish_reason) CHECK(static_cast<int>(*got.finish_reason) == want[5].get<int>());
  if (want[6].is_null()) {
    CHECK(std::holds_alternative<std::monostate>(got.stop_reason));
  } else if (want[6].is_string()) {
    CHECK(std::get<std::string>(got.stop_reason) == want[6].get<std::string>());
  } else {
    CHECK(std::get<int64_t>(got.stop_reason) == want[6].get<int64_t>());
  }
  REQUIRE(got.events.size() == (want[7].is_null() ? 0 : want[7].size()));
  for (size_t i = 0; i < got.events.size(); ++i) {
    CHECK(static_cast<int>(got.events[i].type) == want[7][i]["type"].get<int>());
    CHECK(got.events[i].timestamp == want[7][i]["timestamp"].get<double>());
  }
  CheckRare(want[8], got.kv_transfer_params);
  CheckRare(want[9], got.ec_transfer_params);
  CheckRare(want[10], got.trace_headers);
  CHECK(got.prefill_stats.has_value() == !want[11].is_null());
  if (got.prefill_stats) {
    const PrefillStats& stats = *got.prefill_stats;
    CHECK(stats.num_prompt_tokens == want[11]["num_prompt_tokens"].get<int64_t>());
    CHECK(stats.num_computed_tokens == want[11]["num_computed_tokens"].get<int64_t>());
    CHECK(stats.num_cached_tokens == want[11]["num_cached_tokens"].get<int64_t>());
    CHECK(stats.num_local_cached_tokens == want[11]["num_local_cached_tokens"].get<int64_t>());
    CHECK(stats.num_external_cached_tokens ==
          want[11]["num_external_cached_tokens"].get<int64_t>());
    CHECK(stats.num_cache_creation_tokens == want[11]["num_cache_creation_tokens"].get<int64_t>());
  }
  CheckRare(want[12], got.routed_experts);
  CHECK(got.num_nans_in_logits == want[13].get<int>());
  CheckRare(want[14], got.mm_cache_miss_hashes);
  CheckRare(want[15], got.new_sampling_mask);
  CheckRare(want[16], got.spec_decode_metrics);
  CheckRare(want[17], got.prompt_token_id_logprobs);
  CHECK(got.error.has_value() == !want[18].is_null());
  if (got.error) {
    CHECK(got.error->code == want[18]["code"].get<std::string>());
    CHECK(got.error->message == want[18]["message"].get<std::string>());
    CHECK(got.error->retryable == want[18]["retryable"].get<bool>());
  }
}

void CheckStats(const json& want, const std::optional<SchedulerStats>& got) {
  REQUIRE(got.has_value() == !want.is_null());
  if (!got) return;
  CHECK(got->num_running_reqs == want["num_running_reqs"].get<int64_t>());
  CHECK(got->num_waiting_reqs == want["num_waiting_reqs"].get<int64_t>());
  CHECK(got->num_skipped_waiting_reqs == want["num_skipped_waiting_reqs"].get<int64_t>());
  CHECK(got->step_counter == want["step_counter"].get<int64_t>());
  CHECK(got->current_wave == want["current_wave"].get<int64_t>());
  CHECK(got->kv_cache_usage == want["kv_cache_usage"].get<double>());
  const json& cache = want["prefix_cache_stats"];
  CHECK(got->prefix_cache_stats.reset == cache["reset"].get<bool>());
  CHECK(got->prefix_cache_stats.requests == cache["requests"].get<int64_t>());
  CHECK(got->prefix_cache_stats.queries == cache["queries"].get<int64_t>());
  CHECK(got->prefix_cache_stats.hits == cache["hits"].get<int64_t>());
  CHECK(got->prefix_cache_stats.preempted_requests == cache["preempted_requests"].get<int64_t>());
  CHECK(got->prefix_cache_stats.preempted_queries == cache["preempted_queries"].get<int64_t>());
  CHECK(got->prefix_cache_stats.preempted_hits == cache["preempted_hits"].get<int64_t>());
  CHECK(got->kv_cache_eviction_events.size() == want["kv_cache_eviction_events"].size());
}

void CheckOutputs(const GoldenMessage& message, const EngineCoreOutputs& got) {
  const json& want = message.decoded;
  REQUIRE(want.size() == 9);
  CHECK(got.engine_index == want[0].get<int>());
  REQUIRE(got.outputs.size() == want[1].size());
  for (size_t i = 0; i < got.outputs.size(); ++i) CheckOutput(want[1][i], got.outputs[i], message);
  CheckStats(want[2], got.scheduler_stats);
  CHECK(got.timestamp == want[3].get<double>());
  CHECK(got.utility_output.has_value() == !want[4].is_null());
  if (got.utility_output) {
    CHECK(got.utility_output->call_id == want[4][0].get<uint64_t>());
    CHECK(got.utility_output->failure_message == Maybe<std::string>(want[4][1]));
    CHECK(ToJson(got.utility_output->result.packed) ==
          (want[4][2].is_null() ? json() : want[4][2][1]));
  }
  CHECK(got.finished_requests == (want[5].is_null() ? Words() : want[5].get<Words>()));
  CHECK(got.wave_complete == Maybe<int64_t>(want[6]));
  CHECK(got.start_wave == Maybe<int64_t>(want[7]));
  CHECK(got.weight_version == Maybe<std::string>(want[8]));
}

EngineInput Input(const GoldenMessage& message) {
  const std::vector<std::string_view> views = Views(message.frames, 1);
  auto input = DecodeInput(static_cast<uint8_t>(message.frames[0].at(0)), views);
  INFO(input.status().ToString());
  REQUIRE(input.ok());
  return *std::move(input);
}

void CheckInput(const GoldenMessage& message) {
  INFO(message.name);
  const EngineInput input = Input(message);
  const json& want = message.decoded;
  if (const auto* request = std::get_if<EngineCoreRequest>(&input)) {
    CheckRequest(want, *request);
  } else if (const auto* abort = std::get_if<AbortRequest>(&input)) {
    CHECK(*abort == want.get<Words>());
  } else if (const auto* utility = std::get_if<UtilityRequest>(&input)) {
    CHECK(utility->client_index == want[0].get<int>());
    CHECK(utility->call_id == want[1].get<uint64_t>());
    CHECK(utility->method == want[2].get<std::string>());
    CHECK(ToJson(utility->args.packed) == want[3]);
  } else if (const auto* wave = std::get_if<StartDpWave>(&input)) {
    CHECK(wave->wave == want[0].get<int64_t>());
    CHECK(wave->exclude_engine_index == want[1].get<int>());
  }
}

EngineCoreOutputs Outputs(const GoldenMessage& message) {
  EngineCoreOutputs outputs;
  const Status status = Decode(Views(message.frames), &outputs);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return outputs;
}

TEST_CASE("wire golden: each message of vllm-rs to an engine decodes to its values") {
  const auto messages = ReadGolden("requests.jsonl.gz");
  CHECK(messages.size() > 90);
  for (const GoldenMessage& message : messages) CheckInput(message);
}

TEST_CASE("wire golden: each message that vllm-rs accepted decodes to its values") {
  const auto messages = ReadGolden("outputs.jsonl.gz");
  CHECK(messages.size() == 350);
  EngineCoreOutputs reused;  // one record for all: nothing may be left from the previous message
  for (const GoldenMessage& message : messages) {
    INFO(message.name);
    CheckOutputs(message, Outputs(message));
    REQUIRE(Decode(Views(message.frames), &reused).ok());
    CHECK(reused == Outputs(message));
    CHECK(FindFatalFault(Views(message.frames)) == "");
  }
}

TEST_CASE("wire golden: we decode to what Python decodes to, and encode to the same bytes") {
  const auto messages = ReadGolden("python_types.jsonl.gz");
  CHECK(messages.size() == 43);
  for (const GoldenMessage& message : messages) {
    INFO(message.name);
    EncodedMessage encoded;
    std::vector<std::string_view> want;
    if (message.type == "OUT") {
      const EngineCoreOutputs outputs = Outputs(message);
      CheckOutputs(message, outputs);
      Encode(outputs, &encoded);
      want = Views(message.frames);
      const bool is_wave_word = outputs.wave_complete || outputs.start_wave;
      CHECK(FindFatalFault(want).empty() == !is_wave_word);
    } else if (message.type == "READY_RESPONSE") {
      EngineCoreReadyResponse response;
      REQUIRE(Decode(Views(message.frames), &response).ok());
      CHECK(response.max_model_len == message.decoded["max_model_len"].get<int64_t>());
      CHECK(response.num_gpu_blocks == message.decoded["num_gpu_blocks"].get<int64_t>());
      CHECK(response.block_size == message.decoded["block_size"].get<int64_t>());
      CHECK(response.kv_cache_max_concurrency == 3.9);
      CHECK(response.instance_id == "inst");
      Encode(response, &encoded);
      want = Views(message.frames);
    } else {
      CheckInput(message);
      std::visit(
          [&](const auto& record) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(record)>, ClientLost>) {
              Encode(record, &encoded);
            }
          },
          Input(message));
      want = Views(message.frames, 1);
    }
    const std::vector<std::string_view> got = Views(encoded);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(HexEncode(got[i]) == HexEncode(want[i]));
  }
}

TEST_CASE("wire golden: the specification's vectors") {
  EncodedMessage message;
  Encode(
      EngineStatus{.status = "HELLO", .local = true, .headless = false, .parallel_config_hash = {}},
      &message);
  CHECK(HexEncode(message.body) ==
        "83a6737461747573a548454c4c4fa56c6f63616cc3a8686561646c657373c2");
  Encode(AbortRequest{"cmpl-a-0-12345678"}, &message);
  CHECK(HexEncode(message.body) == "91b1636d706c2d612d302d3132333435363738");
  Encode(UtilityRequest{0, 7, "is_sleeping", {}}, &message);
  CHECK(HexEncode(message.body) == "940007ab69735f736c656570696e6790");

  EngineCoreOutputs reply;
  reply.timestamp = 3.5;
  reply.utility_output = UtilityOutput{7, std::nullopt, PackedBool(false)};
  Encode(reply, &message);
  CHECK(HexEncode(message.body) == "990090c0cb400c0000000000009307c092c0c2c0c0c0c0");

  EngineCoreRequest add;
  add.request_id = "cmpl-a-0-12345678";
  add.external_req_id = "cmpl-a-0";
  add.prompt_token_ids = {1, 2, 3};
  add.arrival_time = 1234.5;
  add.sampling_params.temperature = 0;
  add.sampling_params.max_tokens = 8;
  add.sampling_params.eos_token_id = 2;
  add.sampling_params.all_stop_token_ids = {2};
  add.sampling_params.output_kind = OutputKind::kDelta;
  add.sampling_params.skip_clone = true;
  add.sampling_params.skip_reading_prefix_cache = false;
  // Made with a look-alike type of fewer fields, so its map header is shorter than the real one.
  const auto body = HexDecode(
      "dc0016b1636d706c2d612d302d313233343536373893010203c08aab74656d7065726174757265cb0000000000"
      "000000a473746f7090ae73746f705f746f6b656e5f69647390aa6d61785f746f6b656e7308ab6f75747075745f"
      "6b696e6401aa736b69705f636c6f6e65c3ad5f656f735f746f6b656e5f696402b35f616c6c5f73746f705f746f"
      "6b656e5f6964739102a96261645f776f72647390b9736b69705f72656164696e675f7072656669785f63616368"
      "65c2c0cb40934a0000000000c0c0c0c0c0000000c0c2a8636d706c2d612d30c0c0c2c0c0");
  const std::vector<std::string_view> frames = {*body};
  const auto decoded = DecodeInput(0, frames);
  REQUIRE(decoded.ok());
  CHECK(std::get<EngineCoreRequest>(*decoded) == add);
  Encode(add, &message);
  std::string with_long_header = *body;
  with_long_header.replace(body->find('\x8a'), 1, std::string("\xde\x00\x0a", 3));
  CHECK(HexEncode(message.body) == HexEncode(with_long_header));
}

}  // namespace
}  // namespace tandem::wire
