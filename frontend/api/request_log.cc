#include "frontend/api/request_log.h"

#include <algorithm>

#include "common/log_event.h"
#include "frontend/api/render.h"
#include "frontend/metrics/exposition.h"
#include "frontend/text/tokenizer.h"
#include "proto_msgpack/lora_request.h"
#include "proto_msgpack/schema.h"

namespace tandem {
namespace {

// As text "[1,2,…]", as JSON [1,2].
void AddIds(std::span<const TokenId> ids, std::optional<int64_t> max_len, LogEvent* event) {
  const size_t count = std::min(ids.size(), static_cast<size_t>(max_len.value_or(INT64_MAX)));
  std::string list = "[";
  for (size_t i = 0; i < count; ++i) list += (i > 0 ? "," : "") + std::to_string(ids[i]);
  event->AddToText("token_ids", list + (count < ids.size() ? ",…]" : "]"));
  event->AddValueToJson("token_ids", list + "]");
}

// The bytes of the first max_len characters.
size_t CutAt(std::string_view text, std::optional<int64_t> max_len) {
  if (!max_len) return text.size();
  int64_t num_characters = 0;
  for (size_t end = 0; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (begins && num_characters++ == *max_len) return end;
  }
  return text.size();
}

// As text quoted, with what is behind the quotes where it is cut; as JSON the characters.
void AddText(std::string_view text, std::optional<int64_t> max_len, LogEvent* event) {
  event->AddToText("text", ShownText(text, max_len));
  event->AddToJson("text", text.substr(0, CutAt(text, max_len)));
}

void AddAdapter(const wire::EngineCoreRequest& request, LogEvent* event) {
  if (request.lora_request.is_nil()) return;
  const StatusOr<wire::LoraRequest> lora = wire::UnpackLoraRequest(request.lora_request);
  event->Add("lora", lora.ok() ? ShownText(lora->name, std::nullopt) : "?");
}

// Values that differ from those of a request that sets nothing.
void AddSampling(const wire::SamplingParams& params, LogEvent* event) {
  const wire::SamplingParams usual;
  const auto show = [event](std::string_view name, double value, double usual_value) {
    if (value != usual_value) event->AddNumber(name, MetricNumber(value));
  };
  show("temperature", params.temperature, -1);
  show("top_p", params.top_p, usual.top_p);
  show("top_k", params.top_k, usual.top_k);
  show("min_p", params.min_p, usual.min_p);
  show("presence_penalty", params.presence_penalty, 0);
  show("frequency_penalty", params.frequency_penalty, 0);
  show("repetition_penalty", params.repetition_penalty, 1);
  show("min_tokens", params.min_tokens, 0);
  if (params.seed) event->Add("seed", *params.seed);
  if (!params.stop.empty()) event->Add("stop_strings", params.stop.size());
  if (params.logprobs) event->Add("logprobs", *params.logprobs);
  if (params.structured_outputs) event->Add("structured_outputs", "yes");
}

}  // namespace

std::string ShownText(std::string_view text, std::optional<int64_t> max_len) {
  const size_t end = CutAt(text, max_len);
  std::string quoted;
  AppendQuoted(text.substr(0, end), &quoted);
  return end < text.size() ? quoted + "…" : quoted;
}

void LogReceived(const RequestLogOptions& options, const wire::EngineCoreRequest& request,
                 const Tokenizer& tokenizer) {
  if (!options.requests) return;
  if (LogEnabled(LogLevel::kInfo)) {
    LogEvent event(LogLevel::kInfo, __FILE__, __LINE__, "request received");
    event.Add("id", request.request_id)
        .Add("prompt_tokens", request.prompt_token_ids.size())
        .Add("max_tokens", request.sampling_params.max_tokens);
    AddAdapter(request, &event);
    AddSampling(request.sampling_params, &event);
  }
  if (!LogEnabled(LogLevel::kDebug)) return;
  LogEvent event(LogLevel::kDebug, __FILE__, __LINE__, "request prompt");
  event.Add("id", request.request_id);
  // Zeros stand for embeddings.
  if (request.prompt_embeds.is_nil()) {
    AddText(tokenizer.Decode(request.prompt_token_ids, false), options.max_len, &event);
  } else {
    event.Add("text", "(embeddings)");
  }
  AddIds(request.prompt_token_ids, options.max_len, &event);
}

void LogOutput(const RequestLogOptions& options, std::string_view id, std::string_view reason,
               std::span<const TokenId> token_ids, const Tokenizer& tokenizer) {
  if (!LogEnabled(LogLevel::kInfo)) return;
  {
    LogEvent event(LogLevel::kInfo, __FILE__, __LINE__, "request output");
    event.Add("id", id).Add("reason", reason);
    AddText(tokenizer.Decode(token_ids, true), options.max_len, &event);
  }
  LogEvent event(LogLevel::kDebug, __FILE__, __LINE__, "request output");
  event.Add("id", id);
  AddIds(token_ids, options.max_len, &event);
}

}  // namespace tandem
