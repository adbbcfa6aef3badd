#include "tests/support/api_model.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "frontend/api/chat_completions.h"
#include "frontend/api/completions.h"
#include "frontend/api/decisions.h"
#include "frontend/api/generate_tokens.h"
#include "frontend/api/generation.h"
#include "frontend/api/generative_scoring.h"
#include "frontend/api/invocations.h"
#include "frontend/api/messages.h"
#include "frontend/api/pooling.h"
#include "frontend/api/responses.h"
#include "tests/support/wire_json.h"

namespace tandem {
namespace {

constexpr std::pair<std::string_view, MakeCall> kCalls[] = {
    {"/v1/completions", MakeCompletion},
    {"/v1/chat/completions", MakeChatCompletion},
    {"/v1/chat/completions/batch", MakeChatBatch},
    {"/v1/messages", MakeMessage},
    {"/v1/responses", MakeResponse},
    {"/invocations", MakeInvocation},
    {"/generative_scoring", MakeGenerativeScoring},
    {"/v1/decisions", MakeDecisions},
    {"/v1/systemone", MakeSystemOne},
    {"/inference/v1/generate", MakeTokenGeneration},
    {"/v1/embeddings", MakeEmbedding},
    {"/pooling", MakePooling},
    {"/v2/embed", MakeCohereEmbedding},
    {"/score", MakeScore},
    {"/rerank", MakeRerank}};

const std::string kFolder = TANDEM_GOLDEN_DIR "/api/model";

template <class T>
T OrDie(StatusOr<T> value) {
  if (value.ok()) return std::move(*value);
  std::cerr << value.status().ToString() << "\n";
  std::abort();
}

InputConfig WithDefaults(InputConfig config) {
  config.defaults = OrDie(LoadModelDefaults(kFolder));
  return config;
}

ApiOptions WithName(ApiOptions options) {
  if (options.served_model_names.empty()) options.served_model_names = {"m"};
  return options;
}

InputProcessor MakeProcessor(InputConfig config) {
  auto tokenizer = OrDie(Tokenizer::Load(kFolder));
  auto chat_template = OrDie(ChatTemplate::Compile(tokenizer->chat_templates().at("default")));
  return {WithDefaults(std::move(config)), tokenizer, std::move(chat_template)};
}

}  // namespace

ApiModel::ApiModel(InputConfig config, ApiOptions options)
    : processor_(MakeProcessor(std::move(config))) {
  context_.input_processor = &processor_;
  context_.options = WithName(std::move(options));
}

RequestHeaders ApiModel::Headers() const {
  RequestHeaders headers;
  headers.context.external_id = "test";
  headers.context.arrival_time = 1.5e9;
  headers.context.max_model_len = kMaxModelLen;
  return headers;
}

std::unique_ptr<GenerationCall> ApiModel::MakeCall(std::string_view path) const {
  const auto made = std::find_if(std::begin(kCalls), std::end(kCalls),
                                 [path](const auto& row) { return row.first == path; });
  return made == std::end(kCalls) ? nullptr : made->second(context_);
}

StatusOr<ApiModel::Prepared> ApiModel::Prepare(std::string_view path, std::string_view body) const {
  return Prepare(path, body, Headers());
}

StatusOr<ApiModel::Prepared> ApiModel::Prepare(std::string_view path, std::string_view body,
                                               const RequestHeaders& headers) const {
  Prepared prepared;
  prepared.call = MakeCall(path);
  if (prepared.call == nullptr) return NotFoundError(std::string(path));
  RETURN_IF_ERROR(ParseBody(body, context_, prepared.call.get()));
  ASSIGN_OR_RETURN(static_cast<PreparedRequest&>(prepared),
                   ProcessRequest(headers, context_, prepared.call.get()));
  return prepared;
}

std::unique_ptr<ResponseWriter> ApiModel::Prepared::MakeWriter(std::string* out) const {
  WriterInput input = writer;
  input.prompts = PromptsOf(processed);
  input.out = out;
  return call->MakeWriter(std::move(input));
}

std::string ApiModel::Respond(const Prepared& prepared, const std::vector<Output>& outputs) const {
  std::string out;
  const auto writer = prepared.MakeWriter(&out);
  std::vector<std::unique_ptr<OutputProcessor>> processors;
  for (const auto& request : prepared.processed.requests) {
    processors.push_back(
        std::make_unique<OutputProcessor>(tokenizer(), prepared.output, request.prompt_token_ids));
  }
  Usage usage;
  usage.prompt_tokens = prepared.processed.num_prompt_tokens;
  if (options().enable_prompt_tokens_details) usage.cached_tokens = 0;
  size_t num_left = processors.size();
  for (const Output& output : outputs) {
    OutputProcessor& processor = *processors[output.choice];
    if (processor.finished()) continue;  // a stop string ended it before the engine knew
    usage.completion_tokens += static_cast<int64_t>(output.output.new_token_ids.size());
    if (output.output.prefill_stats && usage.cached_tokens) {
      *usage.cached_tokens += output.output.prefill_stats->num_cached_tokens;
    }
    MessageDelta& delta = processor.Process(output.output);
    if (delta.ready) writer->WriteDelta(static_cast<int>(output.choice), delta, usage);
    if (processor.finished() && --num_left == 0) writer->WriteEnd(usage);
  }
  return out;
}

std::string DescribeRequest(const wire::EngineCoreRequest& request) {
  using nlohmann::json;
  const wire::SamplingParams& params = request.sampling_params;
  json sampling = {{"temperature", params.temperature},
                   {"top_p", params.top_p},
                   {"top_k", params.top_k},
                   {"min_p", params.min_p},
                   {"max_tokens", params.max_tokens},
                   {"min_tokens", params.min_tokens},
                   {"frequency_penalty", params.frequency_penalty},
                   {"presence_penalty", params.presence_penalty},
                   {"repetition_penalty", params.repetition_penalty},
                   {"stop_token_ids", params.stop_token_ids},
                   {"_all_stop_token_ids", params.all_stop_token_ids},
                   {"routed_experts_prompt_start", params.routed_experts_prompt_start}};
  const auto add = [&sampling](const char* key, const auto& value) {
    if (value) sampling[key] = *value;
  };
  add("seed", params.seed);
  add("logprobs", params.logprobs);
  add("prompt_logprobs", params.prompt_logprobs);
  add("stream_interval", params.stream_interval);
  add("thinking_token_budget", params.thinking_token_budget);
  add("watermarking", params.watermarking);
  add("_eos_token_id", params.eos_token_id);
  for (const auto& [id, bias] : params.logit_bias) {
    sampling["logit_bias"][std::to_string(id)] = bias;
  }
  add("prompt_logprob_start", params.prompt_logprob_start);
  if (!params.prompt_logprob_token_ids.is_nil()) {
    const auto tensor = wire::DecodeTensor(params.prompt_logprob_token_ids, {});
    std::vector<int32_t> ids(tensor->data.size() / sizeof(int32_t));
    std::memcpy(ids.data(), tensor->data.data(), tensor->data.size());
    sampling["prompt_logprob_token_ids"] = {
        {"dtype", tensor->dtype}, {"shape", tensor->shape}, {"ids", ids}};
  }
  if (!params.trace_decode_token_ids.is_nil()) {
    sampling["trace_decode_token_ids"] = wire::ToJson(params.trace_decode_token_ids.packed);
  }
  if (!params.allowed_token_ids.empty()) sampling["allowed_token_ids"] = params.allowed_token_ids;
  if (!params.logprob_token_ids.empty()) sampling["logprob_token_ids"] = params.logprob_token_ids;
  if (params.repetition_detection) {
    const auto& rule = *params.repetition_detection;
    sampling["repetition_detection"] = {{"max_pattern_size", rule.max_pattern_size},
                                        {"min_pattern_size", rule.min_pattern_size},
                                        {"min_count", rule.min_count}};
  }
  if (!params.bad_words_token_ids.empty()) {
    sampling["_bad_words_token_ids"] = params.bad_words_token_ids;
  }
  if (!params.extra_args.is_nil()) sampling["extra_args"] = wire::ToJson(params.extra_args.packed);
  const auto or_null = [](const auto& value) { return value ? json(*value) : json(nullptr); };
  if (params.structured_outputs) {
    const wire::StructuredOutputs& outputs = *params.structured_outputs;
    sampling["structured_outputs"] = {
        {"json", wire::ToJson(outputs.json.packed)},
        {"regex", or_null(outputs.regex)},
        {"choice", or_null(outputs.choice)},
        {"grammar", or_null(outputs.grammar)},
        {"json_object", or_null(outputs.json_object)},
        {"disable_any_whitespace", outputs.disable_any_whitespace},
        {"disable_additional_properties", outputs.disable_additional_properties},
        {"whitespace_pattern", or_null(outputs.whitespace_pattern)},
        {"structural_tag", or_null(outputs.structural_tag)},
        {"_backend", or_null(outputs.backend)},
        {"_backend_was_auto", outputs.backend_was_auto}};
  }
  json reasoning = nullptr;
  if (request.own.reasoning) {
    const wire::ReasoningMarks& marks = *request.own.reasoning;
    reasoning = {{"begin", marks.begin},
                 {"end", marks.end},
                 {"tool_call", marks.tool_call},
                 {"forced_end", marks.forced_end}};
  }
  return json({{"request_id", request.request_id},
               {"reasoning_ended", or_null(request.reasoning_ended)},
               {"reasoning", std::move(reasoning)},
               {"prompt_token_ids", request.prompt_token_ids},
               {"sampling", sampling},
               {"skip_reading_prefix_cache", or_null(params.skip_reading_prefix_cache)},
               {"cache_salt", or_null(request.cache_salt)},
               {"data_parallel_rank", or_null(request.data_parallel_rank)},
               {"priority", request.priority},
               {"external_req_id", or_null(request.external_req_id)},
               {"reasoning_parser_kwargs", wire::ToJson(request.reasoning_parser_kwargs.packed)},
               {"session_id", or_null(request.session_id)}})
      .dump();
}

std::vector<std::string> EventBodies(std::string_view stream) {
  std::vector<std::string> bodies;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    if (stream.substr(0, 6) != "data: " || end == std::string_view::npos) {
      std::cerr << "not an event: " << stream << "\n";
      std::abort();
    }
    bodies.emplace_back(stream.substr(6, end - 6));
    stream.remove_prefix(end + 2);
  }
  if (bodies.empty() || bodies.back() != "[DONE]") {
    std::cerr << "a stream without [DONE]\n";
    std::abort();
  }
  bodies.pop_back();
  return bodies;
}

}  // namespace tandem
