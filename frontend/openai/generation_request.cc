#include "frontend/openai/generation_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/strings.h"
#include "frontend/openai/parse_fields.h"

namespace tandem {
namespace {

Status ParseObject(Json& value, JsonDocument* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  *out = JsonDocument(std::move(value));
  return OkStatus();
}

}  // namespace

Status ParseStop(Json& value, GenerationRequest* out) {
  const std::string must_be = "a string or a list of strings";
  if (value.is_string()) {
    out->stop = {value.get<std::string>()};
  } else if (value.is_array()) {
    for (const Json& item : value) {
      if (!item.is_string()) return WrongType("", must_be, item);
      out->stop.push_back(item.get<std::string>());
    }
  } else {
    return WrongType("", must_be, value);
  }
  for (const std::string& stop : out->stop) {
    if (stop.empty()) return ValueError("stop", "must not contain an empty string", stop);
  }
  return OkStatus();
}

Status ParseLogitBias(Json& value, GenerationRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  out->logit_bias.emplace();
  for (auto it = value.begin(); it != value.end(); ++it) {
    const std::string& key = it.key();
    const std::optional<int64_t> token = ParseNumber<int64_t>(key);
    if (!token || *token < 0 || *token > kMaxTokenId) {
      return ValueError("logit_bias", "must have token ids as keys", key);
    }
    double bias = 0;
    if (!ReadValue(*it, &bias).empty()) return WrongType("", "an object of numbers", *it);
    (*out->logit_bias)[*token] = std::clamp(bias, -kMaxLogitBias, kMaxLogitBias);
  }
  return OkStatus();
}

Status ParseStreamOptions(Json& value, GenerationRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  if (value.empty()) return OkStatus();
  StreamOptions options;
  const std::pair<const char*, bool*> flags[] = {
      {"include_usage", &options.include_usage},
      {"continuous_usage_stats", &options.continuous_usage_stats}};
  for (const auto& [name, flag] : flags) {
    const auto it = value.find(name);
    if (it == value.end() || it->is_null()) continue;
    if (!ReadValue(*it, flag).empty()) return WrongType("", "an object of booleans", *it);
  }
  out->stream_options = options;
  return OkStatus();
}

Status ParseKvTransferParams(Json& value, GenerationRequest* out) {
  return ParseObject(value, &out->kv_transfer_params);
}

Status ParseEcTransferParams(Json& value, GenerationRequest* out) {
  return ParseObject(value, &out->ec_transfer_params);
}

Status ParseXargs(Json& value, GenerationRequest* out) {
  const std::string must_be = "an object of strings, numbers or lists of them";
  if (!value.is_object()) return WrongType("", must_be, value);
  const auto is_scalar = [](const Json& item) { return item.is_string() || item.is_number(); };
  for (Json& item : value) {
    if (item.is_boolean()) item = item.get<bool>() ? 1 : 0;
    const bool good =
        is_scalar(item) || (item.is_array() && std::all_of(item.begin(), item.end(), is_scalar));
    if (!good) return WrongType("", must_be, item);
  }
  out->vllm_xargs = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseRepetitionDetection(Json& value, GenerationRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  RepetitionDetection rule;
  const std::pair<const char*, int64_t*> numbers[] = {{"max_pattern_size", &rule.max_pattern_size},
                                                      {"min_pattern_size", &rule.min_pattern_size},
                                                      {"min_count", &rule.min_count}};
  for (const auto& [name, number] : numbers) {
    const auto it = value.find(name);
    if (it == value.end() || it->is_null()) continue;
    int64_t lax = 0;
    const bool is_wide = it->is_number_unsigned();
    if (!is_wide && !ReadValue(*it, &lax).empty())
      return WrongType("", "an object of integers", *it);
    // Beyond the limit only the sign matters.
    *number = it->is_number_unsigned() && it->get<uint64_t>() > uint64_t{kMaxRepetitionSize}
                  ? kMaxRepetitionSize + 1
                  : it->get<int64_t>();
    if (*number < 0 || *number > kMaxRepetitionSize) {
      return ValueError(
          "repetition_detection",
          std::string(name) + " must be between 0 and " + std::to_string(kMaxRepetitionSize), *it);
    }
  }
  if (rule.min_pattern_size > rule.max_pattern_size) {
    return ValueError("repetition_detection", "min_pattern_size must not be above max_pattern_size",
                      value);
  }
  if (rule.max_pattern_size > 0 && rule.min_count < 2) {
    return ValueError("repetition_detection",
                      "min_count must be at least 2; max_pattern_size 0 turns it off", value);
  }
  out->repetition_detection = rule;
  return OkStatus();
}

namespace {

// What vLLM refuses, too.
Status CheckBeamSearch(const GenerationRequest& request) {
  if (!request.use_beam_search) return OkStatus();
  const std::pair<const char*, bool> others[] = {
      {"stream", request.stream}, {"logprob_token_ids", !request.logprob_token_ids.empty()}};
  for (const auto& [name, is_set] : others) {
    if (!is_set) continue;
    return InvalidArgumentError(std::string(name) + " is not available with use_beam_search")
        .WithParam(name);
  }
  return OkStatus();
}

}  // namespace

bool AsksBeamsInVain(const GenerationRequest& request) {
  return request.min_tokens > 0 || request.presence_penalty.value_or(0) != 0 ||
         request.frequency_penalty.value_or(0) != 0 ||
         request.repetition_penalty.value_or(1) != 1 || request.logit_bias ||
         !request.bad_words.empty() || request.prompt_logprobs || request.repetition_detection ||
         request.thinking_token_budget.value_or(-1) >= 0 || request.structured_outputs ||
         request.response_format || request.guided;
}

Status CheckGenerationRequest(const GenerationRequest& request) {
  if (request.stream_options && !request.stream) {
    return InvalidArgumentError("stream_options needs stream to be true")
        .WithParam("stream_options");
  }
  if (request.stream && request.prompt_logprobs.value_or(0) != 0) {
    return InvalidArgumentError("prompt_logprobs are not available with stream")
        .WithParam("prompt_logprobs");
  }
  // The id becomes part of response ids and log lines.
  if (request.request_id && !std::all_of(request.request_id->begin(), request.request_id->end(),
                                         [](char c) { return c > ' ' && c <= '~'; })) {
    return InvalidArgumentError("request_id must be printable ASCII without blanks")
        .WithParam("request_id");
  }
  if (request.allowed_token_ids && request.allowed_token_ids->empty()) {
    return InvalidArgumentError("allowed_token_ids must not be empty")
        .WithParam("allowed_token_ids");
  }
  if (request.logprob_token_ids.size() > kMaxLogprobTokenIds) {
    return InvalidArgumentError(
               "logprob_token_ids has " + std::to_string(request.logprob_token_ids.size()) +
               " ids, at most " + std::to_string(kMaxLogprobTokenIds) + " are allowed")
        .WithParam("logprob_token_ids");
  }
  if (request.truncation_side && *request.truncation_side != "left" &&
      *request.truncation_side != "right") {
    return InvalidArgumentError("truncation_side must be left or right")
        .WithParam("truncation_side");
  }
  constexpr std::string_view kReserved("@/\\\0", 4);  // separators of cache keys and paths
  if (request.cache_salt && request.cache_salt->find_first_of(kReserved) != std::string::npos) {
    return InvalidArgumentError("cache_salt must not contain '@', '/', '\\' or NUL")
        .WithParam("cache_salt");
  }
  if (request.thinking_token_budget.value_or(-1) < -1) {
    return ValueError("thinking_token_budget", "must be a non-negative integer or -1 for unlimited",
                      *request.thinking_token_budget);
  }
  RETURN_IF_ERROR(CheckBeamSearch(request));
  return CheckStructuredOutputs(request);
}

}  // namespace tandem
