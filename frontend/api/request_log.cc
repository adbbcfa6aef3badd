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

std::string ShownIds(std::span<const TokenId> ids, std::optional<int64_t> max_len) {
  const size_t count = std::min(ids.size(), static_cast<size_t>(max_len.value_or(INT64_MAX)));
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + std::to_string(ids[i]);
  if (count < ids.size()) text += ",…";
  return text + "]";
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
  size_t end = text.size();
  if (max_len) {
    int64_t num_characters = 0;
    for (end = 0; end < text.size(); ++end) {
      const bool begins = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
      if (begins && num_characters++ == *max_len) break;
    }
  }
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
  // Zeros stand for embeddings.
  const bool has_text = request.prompt_embeds.is_nil();
  LOG_EVENT(LogLevel::kDebug, "request prompt")
      .Add("id", request.request_id)
      .Add("text",
           has_text ? ShownText(tokenizer.Decode(request.prompt_token_ids, false), options.max_len)
                    : "(embeddings)")
      .Add("token_ids", ShownIds(request.prompt_token_ids, options.max_len));
}

void LogOutput(const RequestLogOptions& options, std::string_view id, std::string_view reason,
               std::span<const TokenId> token_ids, const Tokenizer& tokenizer) {
  LOG_EVENT(LogLevel::kInfo, "request output")
      .Add("id", id)
      .Add("reason", reason)
      .Add("text", ShownText(tokenizer.Decode(token_ids, true), options.max_len));
  LOG_EVENT(LogLevel::kDebug, "request output")
      .Add("id", id)
      .Add("token_ids", ShownIds(token_ids, options.max_len));
}

}  // namespace tandem
