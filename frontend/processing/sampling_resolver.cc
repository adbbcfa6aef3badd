#include "frontend/processing/sampling_resolver.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "frontend/openai/refuse.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/token_ids.h"

namespace tandem {
namespace {

constexpr double kLowestTemperature = 0.01;  // below it float32 logits overflow when divided

// Each key of vllm_xargs, then kv_transfer_params and ec_transfer_params, in one map.
wire::RawValue ExtraArgs(const GenerationRequest& request) {
  Json args = request.vllm_xargs.is_null() ? Json::object() : *request.vllm_xargs;
  const std::pair<const char*, const JsonDocument*> transfers[] = {
      {"kv_transfer_params", &request.kv_transfer_params},
      {"ec_transfer_params", &request.ec_transfer_params}};
  for (const auto& [name, params] : transfers) {
    if (!(*params)->empty()) args[name] = **params;
  }
  if (args.empty()) return {};
  const std::vector<uint8_t> bytes = Json::to_msgpack(args);
  return {std::string(bytes.begin(), bytes.end())};
}

void SortUnique(std::vector<TokenId>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

}  // namespace

SamplingResolver::SamplingResolver(const InputConfig* config, const Tokenizer* tokenizer)
    : config_(*config), tokenizer_(*tokenizer) {
  const ModelDefaults& defaults = config_.defaults;
  vocab_size_ = defaults.vocab_size > 0 ? defaults.vocab_size : tokenizer_.vocab_size();
  eos_id_ = tokenizer_.eos_id();
  if (!eos_id_ && !defaults.eos_ids.empty()) eos_id_ = defaults.eos_ids.front();
  for (const TokenId id : defaults.eos_ids) {
    if (id != eos_id_ && id < vocab_size_) other_eos_ids_.push_back(id);
  }
  for (TokenId id = 0; id < tokenizer_.vocab_size(); ++id) {
    longest_token_bytes_ = std::max(longest_token_bytes_, tokenizer_.TokenBytes(id).size());
  }
}

Status SamplingResolver::CheckId(const char* field, int64_t id) const {
  if (id >= 0 && id < vocab_size_) return OkStatus();
  return Refuse(field, std::string(field) + " has token id " + std::to_string(id) +
                           ", which is out of vocabulary: ids are in [0, " +
                           std::to_string(vocab_size_ - 1) + "]");
}

Status SamplingResolver::CheckLogprobs(const char* field, int64_t num) const {
  const int64_t asked = num == -1 ? vocab_size_ : num;
  const int64_t allowed = config_.max_logprobs == -1 ? vocab_size_ : config_.max_logprobs;
  if (asked <= allowed) return OkStatus();
  return Refuse(field, std::string(field) + " asks for " + std::to_string(asked) +
                           " tokens, the server allows at most " + std::to_string(allowed));
}

StatusOr<wire::SamplingParams> SamplingResolver::Resolve(const GenerationRequest& request,
                                                         std::optional<int64_t> logprobs) const {
  wire::SamplingParams params;
  RETURN_IF_ERROR(SetDistribution(request, &params));
  if (request.seed != -1) params.seed = request.seed;
  params.min_tokens = static_cast<int32_t>(
      std::min<int64_t>(request.min_tokens, std::numeric_limits<int32_t>::max()));
  params.ignore_eos = request.ignore_eos;

  if (request.repetition_detection) {
    const RepetitionDetection& rule = *request.repetition_detection;
    params.repetition_detection = {.max_pattern_size = static_cast<int32_t>(rule.max_pattern_size),
                                   .min_pattern_size = static_cast<int32_t>(rule.min_pattern_size),
                                   .min_count = static_cast<int32_t>(rule.min_count)};
  }
  if (request.stream_interval)
    params.stream_interval = static_cast<int32_t>(*request.stream_interval);
  if (request.skip_special_tokens) params.skip_special_tokens = *request.skip_special_tokens;
  params.spaces_between_special_tokens = request.spaces_between_special_tokens;
  params.extra_args = ExtraArgs(request);
  params.watermarking = request.watermarking;
  params.routed_experts_prompt_start = static_cast<int32_t>(request.routed_experts_prompt_start);
  ASSIGN_OR_RETURN(params.structured_outputs, StructuredOutputsOf(request));
  RETURN_IF_ERROR(SetLogprobs(request, logprobs, &params));
  RETURN_IF_ERROR(SetPromptScores(request, &params));
  RETURN_IF_ERROR(SetTokenRules(request, &params));
  RETURN_IF_ERROR(AddStopTokens(request, &params));
  RETURN_IF_ERROR(AddBadWords(request, &params));
  RETURN_IF_ERROR(SetGivenOutputs(request, &params));
  return params;
}

// The client's values, else the server's defaults, else OpenAI's.
Status SamplingResolver::SetDistribution(const GenerationRequest& request,
                                         wire::SamplingParams* out) const {
  wire::SamplingParams& params = *out;
  const SamplingDefaults& defaults = config_.defaults.sampling;
  const auto choose = [](const auto& asked, const auto& server_default, auto otherwise) {
    return asked ? *asked : server_default ? *server_default : otherwise;
  };
  params.temperature = choose(request.temperature, defaults.temperature, 1.0);
  params.top_p = choose(request.top_p, defaults.top_p, 1.0);
  params.top_k =
      static_cast<int32_t>(choose(request.top_k, defaults.top_k, static_cast<int64_t>(0)));
  params.min_p = choose(request.min_p, defaults.min_p, 0.0);
  params.repetition_penalty = choose(request.repetition_penalty, defaults.repetition_penalty, 1.0);
  params.presence_penalty = request.presence_penalty.value_or(0);
  params.frequency_penalty = request.frequency_penalty.value_or(0);
  if (params.top_k == -1) params.top_k = 0;
  if (params.temperature > 0) {
    params.temperature = std::max(params.temperature, kLowestTemperature);
  } else {
    params.top_p = 1;
    params.top_k = 0;
    params.min_p = 0;
    if (request.n > 1 && !request.use_beam_search) {
      return Refuse("n",
                    "n must be 1 with temperature 0 (greedy), got " + std::to_string(request.n));
    }
  }
  return OkStatus();
}

Status SamplingResolver::SetLogprobs(const GenerationRequest& request,
                                     std::optional<int64_t> logprobs,
                                     wire::SamplingParams* out) const {
  wire::SamplingParams& params = *out;
  if (logprobs) {
    RETURN_IF_ERROR(CheckLogprobs("logprobs", *logprobs));
    if (request.logprob_token_ids.empty()) params.logprobs = static_cast<int32_t>(*logprobs);
  }
  if (request.prompt_logprobs) {
    RETURN_IF_ERROR(CheckLogprobs("prompt_logprobs", *request.prompt_logprobs));
    params.prompt_logprobs = static_cast<int32_t>(*request.prompt_logprobs);
  }
  for (const int64_t id : request.logprob_token_ids) {
    RETURN_IF_ERROR(CheckId("logprob_token_ids", id));
    params.logprob_token_ids.push_back(static_cast<TokenId>(id));
  }
  return OkStatus();
}

// Rows of one length, as the engine takes them: the missing ids are -1.
Status SamplingResolver::SetPromptScores(const GenerationRequest& request,
                                         wire::SamplingParams* params) const {
  constexpr const char* kField = "prompt_logprob_token_ids";
  if (!request.prompt_logprob_token_ids) return OkStatus();
  const std::vector<std::vector<int64_t>>& rows = *request.prompt_logprob_token_ids;
  size_t num_columns = 0;
  for (const std::vector<int64_t>& row : rows) num_columns = std::max(num_columns, row.size());
  if (num_columns == 0) return Refuse(kField, std::string(kField) + " must not be empty");
  RETURN_IF_ERROR(CheckLogprobs(kField, static_cast<int64_t>(num_columns)));
  if (rows.size() * num_columns >
      static_cast<uint64_t>(config_.max_fanout_bytes) / sizeof(int32_t)) {
    return Refuse(kField, std::string(kField) + " with " + std::to_string(rows.size()) +
                              " lists of up to " + std::to_string(num_columns) +
                              " ids would need more than " +
                              std::to_string(config_.max_fanout_bytes) + " bytes");
  }
  std::vector<int32_t> ids(rows.size() * num_columns, -1);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < rows[i].size(); ++j) {
      if (rows[i][j] >= 0) RETURN_IF_ERROR(CheckId(kField, rows[i][j]));
      ids[i * num_columns + j] = static_cast<int32_t>(rows[i][j]);
    }
  }
  params->prompt_logprob_token_ids = wire::PackedTensor(
      {.dtype = "<i4",
       .shape = {static_cast<int64_t>(rows.size()), static_cast<int64_t>(num_columns)},
       .data = {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)}});
  if (request.prompt_logprob_start) {
    params->prompt_logprob_start = static_cast<int32_t>(*request.prompt_logprob_start);
  }
  return OkStatus();
}

Status SamplingResolver::SetTokenRules(const GenerationRequest& request,
                                       wire::SamplingParams* out) const {
  wire::SamplingParams& params = *out;
  if (request.logit_bias) {
    for (const auto& [id, bias] : *request.logit_bias) {
      RETURN_IF_ERROR(CheckId("logit_bias", id));
      params.logit_bias.emplace_back(static_cast<TokenId>(id), bias);
    }
  }
  if (request.allowed_token_ids) {
    for (const int64_t id : *request.allowed_token_ids) {
      RETURN_IF_ERROR(CheckId("allowed_token_ids", id));
      params.allowed_token_ids.push_back(static_cast<TokenId>(id));
    }
    SortUnique(&params.allowed_token_ids);
  }
  return OkStatus();
}

Status SamplingResolver::SetGivenOutputs(const GenerationRequest& request,
                                         wire::SamplingParams* params) const {
  if (!request.trace_decode_token_ids) return OkStatus();
  std::vector<TokenId> ids;
  for (const int64_t id : *request.trace_decode_token_ids) {
    RETURN_IF_ERROR(CheckId("trace_decode_token_ids", id));
    ids.push_back(static_cast<TokenId>(id));
  }
  params->trace_decode_token_ids = wire::PackedTokenIds(ids);
  return OkStatus();
}

Status SamplingResolver::AddStopTokens(const GenerationRequest& request,
                                       wire::SamplingParams* params) const {
  if (static_cast<int64_t>(request.stop.size()) > config_.max_stop_strings) {
    return Refuse("stop", "stop has " + std::to_string(request.stop.size()) + " strings, at most " +
                              std::to_string(config_.max_stop_strings) +
                              " are allowed (--max-stop-strings)");
  }
  std::vector<bool> seen(static_cast<size_t>(vocab_size_));
  const auto add = [&seen, params](TokenId id) {
    if (seen[static_cast<size_t>(id)]) return;
    seen[static_cast<size_t>(id)] = true;
    params->stop_token_ids.push_back(id);
  };
  for (const int64_t id : request.stop_token_ids) {
    RETURN_IF_ERROR(CheckId("stop_token_ids", id));
    add(static_cast<TokenId>(id));
  }
  params->all_stop_token_ids = params->stop_token_ids;
  if (eos_id_) params->all_stop_token_ids.push_back(*eos_id_);
  for (const TokenId id : other_eos_ids_) params->all_stop_token_ids.push_back(id);
  SortUnique(&params->all_stop_token_ids);
  if (request.ignore_eos) return OkStatus();
  params->eos_token_id = eos_id_;
  for (const TokenId id : other_eos_ids_) add(id);
  return OkStatus();
}

// Forbids a word as it is tokenized at the start of a text and, where that differs, after a blank.
Status SamplingResolver::AddBadWords(const GenerationRequest& request,
                                     wire::SamplingParams* params) const {
  Status too_many = Refuse(
      "bad_words", "bad_words are too many: at most " + std::to_string(config_.max_bad_words) +
                       " spellings of " + std::to_string(config_.max_bad_words_total_tokens) +
                       " tokens in all are allowed");
  const size_t most_bytes =
      static_cast<size_t>(config_.max_bad_words_total_tokens) * longest_token_bytes_;
  int64_t num_tokens = 0;
  for (const std::string& word : request.bad_words) {
    if (word.size() > most_bytes) return too_many;
    const size_t start = word.find_first_not_of(" \t\r\n");
    const std::string bare = start == std::string::npos ? "" : word.substr(start);
    ASSIGN_OR_RETURN(auto ids, tokenizer_.Encode(bare, false));
    ASSIGN_OR_RETURN(auto spaced, tokenizer_.Encode(" " + bare, false));
    if (ids.empty()) return Refuse("bad_words", "bad_words must not contain an empty word");
    const bool other = !spaced.empty() && spaced[0] != ids[0] && spaced.size() == ids.size();
    num_tokens += static_cast<int64_t>(ids.size() + (other ? spaced.size() : 0));
    params->bad_words_token_ids.push_back(std::move(ids));
    if (other) params->bad_words_token_ids.push_back(std::move(spaced));
    if (static_cast<int64_t>(params->bad_words_token_ids.size()) > config_.max_bad_words ||
        num_tokens > config_.max_bad_words_total_tokens) {
      return too_many;
    }
  }
  for (const auto& ids : params->bad_words_token_ids) {
    for (const TokenId id : ids) RETURN_IF_ERROR(CheckId("bad_words", id));
  }
  return OkStatus();
}

}  // namespace tandem
