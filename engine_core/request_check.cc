#include "engine_core/request_check.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto_msgpack/pooling_params.h"
#include "proto_msgpack/token_ids.h"

namespace tandem {
namespace {

// nil, an empty array and an empty map all mean "none".
bool IsNone(const wire::RawValue& value) {
  return value.is_nil() || value.packed == "\x90" || value.packed == "\x80" ||
         value.packed == "\xc0";
}

Status OutOfRange(std::string_view name, double value, std::string_view allowed) {
  std::string number = std::to_string(value);
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    number = std::to_string(static_cast<int64_t>(value));
  }
  return InvalidArgumentError(std::string(name) + " is " + number + ", must be " +
                              std::string(allowed));
}

Status CheckTokenIds(std::string_view name, std::span<const TokenId> ids, int32_t vocab_size) {
  const auto wrong =
      std::find_if(ids.begin(), ids.end(), [=](TokenId id) { return id < 0 || id >= vocab_size; });
  if (wrong == ids.end()) return OkStatus();
  return InvalidArgumentError(std::string(name) + " holds token id " + std::to_string(*wrong) +
                              ", the vocabulary has " + std::to_string(vocab_size) + " tokens");
}

Status CheckKind(const wire::EngineCoreRequest& request, bool pools) {
  if (!pools && !IsNone(request.pooling_params)) {
    return UnimplementedError("pooling is not supported by this engine");
  }
  if (request.resumable) {
    return UnimplementedError("streaming input is not supported by this engine");
  }
  return OkStatus();
}

Status CheckPrompt(const wire::EngineCoreRequest& request, const ExecutorLimits& limits) {
  const size_t num_tokens = request.prompt_token_ids.size();
  if (num_tokens == 0) return InvalidArgumentError("the prompt is empty");
  // The first output must fit as well.
  const int32_t most = limits.pooling ? limits.max_model_len : limits.max_model_len - 1;
  if (num_tokens > static_cast<size_t>(most)) {
    return InvalidArgumentError("this model's maximum context length is " +
                                std::to_string(limits.max_model_len) +
                                " tokens, the prompt alone has " + std::to_string(num_tokens));
  }
  return CheckTokenIds("the prompt", request.prompt_token_ids, limits.vocab_size);
}

Status CheckPooling(const wire::EngineCoreRequest& request, const PoolerConfig& config) {
  if (request.pooling_params.is_nil()) {
    return InvalidArgumentError("this model makes vectors or scores, it does not generate");
  }
  ASSIGN_OR_RETURN(const wire::PoolingParams params,
                   wire::UnpackPoolingParams(request.pooling_params));
  const std::string_view task = TaskName(config.task);
  if (params.task.value_or(std::string(task)) != task) {
    return UnimplementedError("the pooling task " + *params.task +
                              " is not supported: this model's is " + std::string(task));
  }
  if (params.dimensions && (*params.dimensions < 1 || !config.is_matryoshka ||
                            *params.dimensions > config.embedding_size)) {
    return OutOfRange("dimensions", static_cast<double>(*params.dimensions),
                      config.is_matryoshka
                          ? "in [1, " + std::to_string(config.embedding_size) + "]"
                          : "unset: the model does not support Matryoshka embeddings");
  }
  RETURN_IF_ERROR(wire::SecondBegin(params).status());
  const bool asks_for_more = params.requires_token_ids || !IsNone(params.step_tag_id) ||
                             !IsNone(params.returned_token_ids) ||
                             !IsNone(params.late_interaction_params) ||
                             !IsNone(params.late_chunking_params);
  if (asks_for_more) {
    return UnimplementedError(
        "token ids, step tags, late interaction and late chunking of pooling are not supported by "
        "this engine");
  }
  return OkStatus();
}

// The outputs that a request brings from an earlier run follow its prompt and did not end it.
Status CheckPriorOutputs(const wire::EngineCoreRequest& request) {
  const int64_t num_outputs = request.own.num_prior_output_tokens;
  const auto num_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  const int64_t limit = std::min(num_tokens, int64_t{request.sampling_params.max_tokens}) - 1;
  if (num_outputs >= 0 && num_outputs <= limit) return OkStatus();
  return OutOfRange("num_prior_output_tokens", static_cast<double>(num_outputs),
                    "between 0 and " + std::to_string(limit) + ": less than the " +
                        std::to_string(num_tokens) + " tokens given and less than max_tokens");
}

Status CheckLengths(const wire::SamplingParams& params) {
  if (params.n != 1) return OutOfRange("n", params.n, "1 on the wire");
  if (params.max_tokens < 1) return OutOfRange("max_tokens", params.max_tokens, "at least 1");
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens) {
    return OutOfRange("min_tokens", params.min_tokens, "between 0 and max_tokens");
  }
  if (params.repetition_detection) {
    const wire::RepetitionDetection& rule = *params.repetition_detection;
    if (rule.max_pattern_size < 0 || rule.min_pattern_size < 0 || rule.min_count < 0) {
      return InvalidArgumentError("repetition_detection holds a negative number");
    }
  }
  return OkStatus();
}

// NaN fails every comparison, so each test is written for what is allowed.
Status CheckDistribution(const wire::SamplingParams& params) {
  const bool finite =
      std::isfinite(params.temperature) && std::isfinite(params.repetition_penalty) &&
      std::isfinite(params.presence_penalty) && std::isfinite(params.frequency_penalty);
  if (!finite) return InvalidArgumentError("a sampling parameter is not a finite number");
  if (!(params.temperature >= 0)) return OutOfRange("temperature", params.temperature, ">= 0");
  if (!(params.top_p > 0 && params.top_p <= 1))
    return OutOfRange("top_p", params.top_p, "in (0, 1]");
  if (params.top_k < -1) return OutOfRange("top_k", params.top_k, "-1, 0 or positive");
  if (!(params.min_p >= 0 && params.min_p <= 1))
    return OutOfRange("min_p", params.min_p, "in [0, 1]");
  if (!(params.repetition_penalty > 0)) {
    return OutOfRange("repetition_penalty", params.repetition_penalty, "> 0");
  }
  if (params.logprobs.value_or(0) < -1) return OutOfRange("logprobs", *params.logprobs, ">= -1");
  if (params.prompt_logprobs.value_or(0) < -1) {
    return OutOfRange("prompt_logprobs", *params.prompt_logprobs, ">= -1");
  }
  return OkStatus();
}

// A list longer than the vocabulary only repeats itself, and each entry costs time in every step.
Status CheckListSizes(const wire::SamplingParams& params, int32_t vocab_size) {
  const auto max_size = static_cast<size_t>(vocab_size);
  const struct {
    size_t size;
    std::string_view name;
  } lists[] = {{params.stop_token_ids.size(), "stop_token_ids"},
               {params.allowed_token_ids.size(), "allowed_token_ids"},
               {params.logprob_token_ids.size(), "logprob_token_ids"},
               {params.bad_words_token_ids.size(), "bad_words"},
               {params.logit_bias.size(), "logit_bias"}};
  for (const auto& [size, name] : lists) {
    if (size > max_size) {
      return InvalidArgumentError(std::string(name) + " has " + std::to_string(size) +
                                  " entries, must be at most " + std::to_string(max_size));
    }
  }
  return OkStatus();
}

// The budget is kept by forcing the reasoning's end, so both of its marks must be known.
Status CheckReasoning(const wire::EngineCoreRequest& request, int32_t vocab_size) {
  constexpr size_t kMaxMarkTokens = 256;
  const int32_t budget = request.sampling_params.thinking_token_budget.value_or(-1);
  if (budget < -1) return OutOfRange("thinking_token_budget", budget, "-1 or more");
  const wire::Rare<wire::ReasoningMarks>& marks = request.own.reasoning;
  if (budget >= 0 && (!marks || marks->begin.empty() || marks->forced_end.empty())) {
    return InvalidArgumentError(
        "thinking_token_budget is set, but the frontend sent no marks of the reasoning's begin and "
        "end");
  }
  if (!marks) return OkStatus();
  for (const auto* mark : {&marks->begin, &marks->end, &marks->tool_call, &marks->forced_end}) {
    if (mark->size() > kMaxMarkTokens) {
      return OutOfRange("a reasoning mark's length", static_cast<double>(mark->size()),
                        "at most " + std::to_string(kMaxMarkTokens));
    }
    RETURN_IF_ERROR(CheckTokenIds("a reasoning mark", *mark, vocab_size));
  }
  return OkStatus();
}

// Their logprobs are the model's, so that no mask may be part of its logits.
Status CheckGivenOutputs(const wire::SamplingParams& params, int32_t vocab_size) {
  if (params.trace_decode_token_ids.is_nil()) return OkStatus();
  const auto refuse = [](const std::string& what) {
    return InvalidArgumentError("trace_decode_token_ids cannot be combined with " + what);
  };
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                   wire::UnpackTokenIds(params.trace_decode_token_ids));
  if (params.structured_outputs) return refuse("structured outputs");
  if (params.thinking_token_budget.value_or(-1) >= 0) return refuse("thinking_token_budget");
  return CheckTokenIds("trace_decode_token_ids", ids, vocab_size);
}

Status CheckTokenLists(const wire::SamplingParams& params, int32_t vocab_size) {
  RETURN_IF_ERROR(CheckListSizes(params, vocab_size));
  // Stop ids are only compared, so any number is harmless; the other lists index logits.
  RETURN_IF_ERROR(CheckTokenIds("allowed_token_ids", params.allowed_token_ids, vocab_size));
  RETURN_IF_ERROR(CheckTokenIds("logprob_token_ids", params.logprob_token_ids, vocab_size));
  for (const auto& words : params.bad_words_token_ids) {
    RETURN_IF_ERROR(CheckTokenIds("bad_words", words, vocab_size));
  }
  for (const auto& [id, bias] : params.logit_bias) {
    RETURN_IF_ERROR(CheckTokenIds("logit_bias", {&id, 1}, vocab_size));
    if (!std::isfinite(bias)) return InvalidArgumentError("a logit_bias is not a finite number");
  }
  return OkStatus();
}

}  // namespace

Status CheckRequest(const wire::EngineCoreRequest& request, const ExecutorLimits& limits) {
  if (request.request_id.empty()) return InvalidArgumentError("the request id is empty");
  if (!std::isfinite(request.arrival_time)) {  // the priority queue sorts by it
    return InvalidArgumentError("arrival_time is not a finite number");
  }
  RETURN_IF_ERROR(CheckKind(request, limits.pooling.has_value()));
  RETURN_IF_ERROR(CheckPrompt(request, limits));
  if (limits.pooling) return CheckPooling(request, *limits.pooling);
  RETURN_IF_ERROR(CheckLengths(request.sampling_params));
  RETURN_IF_ERROR(CheckPriorOutputs(request));
  RETURN_IF_ERROR(CheckDistribution(request.sampling_params));
  RETURN_IF_ERROR(CheckReasoning(request, limits.vocab_size));
  RETURN_IF_ERROR(CheckGivenOutputs(request.sampling_params, limits.vocab_size));
  return CheckTokenLists(request.sampling_params, limits.vocab_size);
}

}  // namespace tandem
