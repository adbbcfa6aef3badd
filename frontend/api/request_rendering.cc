#include "frontend/api/request_rendering.h"

#include <cstdint>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "frontend/api/chat_completions.h"
#include "frontend/api/completions.h"
#include "frontend/api/generate.h"
#include "frontend/api/messages.h"
#include "frontend/api/or_null.h"
#include "frontend/api/parse_context.h"
#include "frontend/api/render.h"
#include "frontend/api/responses.h"
#include "frontend/api/token_offsets.h"
#include "proto_msgpack/multimodal.h"

namespace tandem {
namespace {

Json StructuredOutputsJson(const wire::StructuredOutputs& outputs) {
  Json json = {{"json", UnpackJson(outputs.json)},
               {"regex", OrNull(outputs.regex)},
               {"choice", OrNull(outputs.choice)},
               {"grammar", OrNull(outputs.grammar)},
               {"json_object", OrNull(outputs.json_object)},
               {"structural_tag", OrNull(outputs.structural_tag)},
               {"whitespace_pattern", OrNull(outputs.whitespace_pattern)}};
  for (auto it = json.begin(); it != json.end();) {
    // Iterators of objects only go step by step: an offset throws.
    it = it->is_null() ? json.erase(it) : std::next(it);
  }
  json["disable_any_whitespace"] = outputs.disable_any_whitespace;
  json["disable_additional_properties"] = outputs.disable_additional_properties;
  return json;
}

// What was resolved, by the names of a completion's fields. request: for what stays text.
Json SamplingJson(const GenerationRequest& request, const wire::SamplingParams& params) {
  Json json = {{"n", request.n},
               {"presence_penalty", params.presence_penalty},
               {"frequency_penalty", params.frequency_penalty},
               {"repetition_penalty", params.repetition_penalty},
               {"temperature", params.temperature},
               {"top_p", params.top_p},
               {"top_k", params.top_k},
               {"min_p", params.min_p},
               {"seed", OrNull(params.seed)},
               {"stop", request.stop},
               {"stop_token_ids", params.stop_token_ids},
               {"ignore_eos", params.ignore_eos},
               {"max_tokens", params.max_tokens},
               {"min_tokens", params.min_tokens},
               {"logprobs", OrNull(params.logprobs)},
               {"prompt_logprobs", OrNull(params.prompt_logprobs)},
               {"skip_special_tokens", params.skip_special_tokens},
               {"spaces_between_special_tokens", params.spaces_between_special_tokens},
               {"include_stop_str_in_output", request.include_stop_str_in_output},
               {"bad_words", request.bad_words}};
  if (!params.logit_bias.empty()) {
    Json& bias = json["logit_bias"] = Json::object();
    for (const auto& [id, added] : params.logit_bias) bias[std::to_string(id)] = added;
  }
  if (!params.allowed_token_ids.empty()) json["allowed_token_ids"] = params.allowed_token_ids;
  if (!params.logprob_token_ids.empty()) {
    json["logprob_token_ids"] = params.logprob_token_ids;
    json["logprobs"] = 0;
  }
  if (params.stream_interval) json["stream_interval"] = *params.stream_interval;
  if (params.repetition_detection) {
    const wire::RepetitionDetection& rule = *params.repetition_detection;
    json["repetition_detection"] = {{"max_pattern_size", rule.max_pattern_size},
                                    {"min_pattern_size", rule.min_pattern_size},
                                    {"min_count", rule.min_count}};
  }
  if (params.structured_outputs) {
    json["structured_outputs"] = StructuredOutputsJson(*params.structured_outputs);
  }
  if (params.thinking_token_budget) json["thinking_token_budget"] = *params.thinking_token_budget;
  if (params.watermarking) json["watermarking"] = *params.watermarking;
  if (params.routed_experts_prompt_start != 0) {
    json["routed_experts_prompt_start"] = params.routed_experts_prompt_start;
  }
  if (!request.vllm_xargs.is_null()) json["extra_args"] = *request.vllm_xargs;
  return json;
}

Json TokenOffsetsJson(const GenerationRequest& asked, const ApiContext& context,
                      const std::vector<TokenId>& ids, std::string_view text) {
  if (!asked.return_token_offsets) return nullptr;
  const auto offsets = TokenOffsets(context.input_processor->tokenizer(), ids, text);
  return offsets ? Json(*offsets) : Json(nullptr);
}

Json StreamOptionsJson(const GenerationRequest& request) {
  if (!request.stream_options) return nullptr;
  return {{"include_usage", request.stream_options->include_usage},
          {"continuous_usage_stats", request.stream_options->continuous_usage_stats}};
}

// Without the prompt that a prefill stage has forwarded to a chat: it is the body's prompt.
Json TransferJson(const GenerationRequest& asked, bool is_chat) {
  if (asked.kv_transfer_params.is_null()) return nullptr;
  Json params = *asked.kv_transfer_params;
  if (is_chat) params.erase("prompt_token_ids");
  return params;
}

// Which images there are, and where; null without. What the model takes of them is not shown:
// a router by content needs their hashes only.
Json FeaturesJson(const wire::EngineCoreRequest& request) {
  const auto features = wire::DecodeFeatures(request);
  if (!features.ok() || features->empty()) return nullptr;
  Json hashes = Json::array();
  Json placeholders = Json::array();
  for (const wire::MultiModalFeature& feature : *features) {
    hashes.push_back(feature.identifier);
    placeholders.push_back({{"offset", feature.offset}, {"length", feature.length}});
  }
  return {{"mm_hashes", {{"image", std::move(hashes)}}},
          {"mm_placeholders", {{"image", std::move(placeholders)}}},
          {"kwargs_data", nullptr}};
}

// The engine requests of each prompt as one body. REQUIRES: the call is parsed, and whole.
StatusOr<Json> RenderedBodies(const RequestHeaders& headers, const ApiContext& context,
                              GenerationCall* call) {
  const GenerationRequest asked = call->request();  // Process uses it up
  const InputConfig& config = context.input_processor->config();
  const Json parse_context =
      call->chat() == nullptr
          ? Json(nullptr)
          : ParseContextJson(*call->chat(), config.default_chat_template_kwargs);
  ASSIGN_OR_RETURN(const PreparedRequest prepared, ProcessRequest(headers, context, call));
  const ProcessedRequest& processed = prepared.processed;
  if (processed.beams) {
    return InvalidArgumentError("use_beam_search is not rendered: its steps depend on each other")
        .WithParam("use_beam_search");
  }
  Json bodies = Json::array();
  for (size_t i = 0; i < processed.requests.size(); i += static_cast<size_t>(processed.n)) {
    const wire::EngineCoreRequest& request = processed.requests[i];
    if (!request.prompt_embeds.is_nil()) {
      return InvalidArgumentError("prompt_embeds are not rendered: they are no tokens")
          .WithParam("prompt_embeds");
    }
    Json sampling = SamplingJson(asked, request.sampling_params);
    const std::string& text = processed.prompt_texts[i / static_cast<size_t>(processed.n)];
    bodies.push_back(
        {{"request_id", request.external_req_id.value_or(prepared.writer.head.id)},
         {"token_ids", request.prompt_token_ids},
         {"token_offsets", TokenOffsetsJson(asked, context, request.prompt_token_ids, text)},
         {"features", FeaturesJson(request)},
         {"sampling_params", std::move(sampling)},
         {"model", OrNull(asked.model)},
         {"stream", asked.stream},
         {"reasoning_ended", OrNull(request.reasoning_ended)},
         {"reasoning_parser_kwargs", UnpackJson(request.reasoning_parser_kwargs)},
         {"parse_context", parse_context},
         {"return_token_ids", asked.return_token_ids},
         {"stream_options", StreamOptionsJson(asked)},
         {"cache_salt", OrNull(request.cache_salt)},
         {"priority", request.priority},
         {"session_id", OrNull(request.session_id)},
         {"kv_transfer_params", TransferJson(asked, call->chat() != nullptr)},
         {"ec_transfer_params",
          asked.ec_transfer_params.is_null() ? Json(nullptr) : *asked.ec_transfer_params}});
  }
  return bodies;
}

Awaitable<void> Handle(Exchange& exchange, ApiContext* context, MakeCall make_call, bool as_list) {
  const std::unique_ptr<GenerationCall> call = make_call(*context);
  const auto headers = ReadHeaders(exchange.request(), *context);
  if (!headers.ok()) co_return RespondWithError(exchange, *context, *call, headers.status());
  auto parse = [context, call = call.get(), body = std::move(exchange.mutable_request().body)] {
    return ParseBody(body, *context, call);
  };
  Status status = co_await OnPool(context->text_pool, std::move(parse));
  if (status.ok()) {
    const Status fetched = co_await FetchAll(exchange, context, std::nullopt, call.get());
    status = fetched;
  }
  if (!status.ok()) co_return RespondWithError(exchange, *context, *call, status);
  auto work = [&headers = *headers, context, call = call.get(),
               as_list]() -> StatusOr<std::string> {
    ASSIGN_OR_RETURN(const Json bodies, RenderedBodies(headers, *context, call));
    return DumpJson(as_list ? bodies : bodies.front());
  };
  const auto rendered = co_await OnPool(context->text_pool, std::move(work));
  if (!rendered.ok()) co_return RespondWithError(exchange, *context, *call, rendered.status());
  exchange.Respond({200, *rendered, "application/json", {}});
}

}  // namespace

Awaitable<void> HandleRenderChat(Exchange& exchange, ApiContext* context) {
  return Handle(exchange, context, MakeChatCompletion, /*as_list=*/false);
}

Awaitable<void> HandleRenderCompletion(Exchange& exchange, ApiContext* context) {
  return Handle(exchange, context, MakeCompletion, /*as_list=*/true);
}

Awaitable<void> HandleRenderResponse(Exchange& exchange, ApiContext* context) {
  return Handle(exchange, context, MakeResponse, /*as_list=*/false);
}

Awaitable<void> HandleRenderMessage(Exchange& exchange, ApiContext* context) {
  return Handle(exchange, context, MakeMessage, /*as_list=*/false);
}

}  // namespace tandem
