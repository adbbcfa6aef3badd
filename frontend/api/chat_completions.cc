#include "frontend/api/chat_completions.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace tandem {
ChatShape MakeShape(const ChatRequest& request, const InputConfig& config,
                    const ApiOptions& options) {
  ChatShape shape;
  shape.choice = MakeChoiceShape(request, options);
  if (request.logprobs) {
    shape.top_logprobs = request.logprob_token_ids.empty() ? request.top_logprobs : -1;
  }
  shape.show_prompt_logprobs = request.prompt_logprobs.has_value();
  shape.return_prompt_text = request.return_prompt_text;
  shape.role = config.response_role;
  if (request.echo) shape.echoed_text = EchoedText(request, config.response_role);
  shape.usage = MakeStreamUsage(request, options);
  return shape;
}

// ---- One body ----

ChatResponse::ChatResponse(const Tokenizer& tokenizer, ChatShape shape,
                           const std::vector<ChoicePrompt>& prompts, std::string* out)
    : tokenizer_(tokenizer),
      shape_(std::move(shape)),
      prompt_(prompts.front()),
      choices_(prompts.size()),
      out_(out) {
  for (CollectedChoice& choice : choices_) choice.text = shape_.echoed_text;
}

void ChatResponse::OnDelta(int index, const OutputDelta& delta, const Usage&) {
  CollectedChoice& choice = choices_[static_cast<size_t>(index)];
  if (index == 0) {
    AppendPositionLogprobs(tokenizer_, shape_.choice.logprobs_style, delta.prompt_logprobs,
                           &prompt_logprobs_);
  }
  choice.Append(tokenizer_, shape_.choice, delta);
  if (choice.TakeEnd(delta)) kv_transfer_params_ = delta.kv_transfer_params;
}

void ChatResponse::OnEnd(const Usage& usage) {
  const bool ids = shape_.choice.return_token_ids;
  Json choices = Json::array();
  for (const CollectedChoice& choice : choices_) {
    Json message = {{"role", shape_.role},    {"content", choice.text}, {"refusal", nullptr},
                    {"annotations", nullptr}, {"audio", nullptr},       {"function_call", nullptr},
                    {"reasoning", nullptr}};
    choices.push_back(
        {{"index", choices.size()},
         {"message", std::move(message)},
         {"logprobs", shape_.top_logprobs ? ChatLogprobsJson(choice.logprobs, *shape_.top_logprobs)
                                          : Json(nullptr)},
         {"finish_reason", choice.finish_reason},
         {"stop_reason", StopReasonJson(choice.stop_reason)},
         {"token_ids", ids ? TokenIdsJson(choice.token_ids) : Json(nullptr)},
         {"routed_experts", nullptr},
         {"weight_versions", nullptr}});
  }
  out_->append(DumpJson(
      {{"id", shape_.head.id},
       {"object", "chat.completion"},
       {"created", shape_.head.created},
       {"model", shape_.head.model},
       {"choices", std::move(choices)},
       {"service_tier", nullptr},
       {"system_fingerprint", FingerprintJson(shape_.head)},
       {"usage", UsageJson(usage)},
       {"prompt_logprobs",
        shape_.show_prompt_logprobs ? PromptLogprobsJson(prompt_logprobs_) : Json(nullptr)},
       {"prompt_token_ids", ids ? TokenIdsJson(*prompt_.token_ids) : Json(nullptr)},
       {"prompt_text", shape_.return_prompt_text ? Json(*prompt_.text) : Json(nullptr)},
       {"kv_transfer_params", UnpackJson(kv_transfer_params_)},
       {"ec_transfer_params", nullptr},
       {"metrics", TimingsJson(usage.timings)}}));
}

// ---- Events ----

ChatStream::ChatStream(const Tokenizer& tokenizer, ChatShape shape,
                       std::vector<ChoicePrompt> prompts, std::string* out)
    : tokenizer_(tokenizer),
      shape_(std::move(shape)),
      writer_(shape_.head, "chat.completion.chunk"),
      prompts_(std::move(prompts)),
      started_(prompts_.size()),
      out_(out) {}

void ChatStream::OnDelta(int choice, const OutputDelta& delta, const Usage& usage) {
  if (!started_[static_cast<size_t>(choice)]) {
    started_[static_cast<size_t>(choice)] = true;
    AppendRole(choice, usage);
    if (!shape_.echoed_text.empty()) AppendContent(choice, shape_.echoed_text, nullptr, usage);
  }
  AppendContent(choice, delta.text, &delta, usage);
}

void ChatStream::AppendRole(int choice, const Usage& usage) {
  writer_.Begin(choice, out_);
  out_->append(",\"delta\":{\"role\":");
  AppendQuoted(shape_.role, out_);
  out_->append(",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null");
  std::string rest = ",\"prompt_token_ids\":";
  const ChoicePrompt& prompt = prompts_[static_cast<size_t>(choice)];
  if (shape_.choice.return_token_ids) {
    AppendTokenIds(*prompt.token_ids, &rest);
  } else {
    rest += "null";
  }
  rest += ",\"prompt_text\":";
  if (shape_.return_prompt_text) {
    AppendQuoted(*prompt.text, &rest);
  } else {
    rest += "null";
  }
  Usage before = usage;  // nothing is generated yet when a role is announced
  before.completion_tokens = 0;
  writer_.End(rest, Shown(before), out_);
}

// delta: null for the echoed text, which has no tokens of its own.
void ChatStream::AppendContent(int choice, std::string_view text, const OutputDelta* delta,
                               const Usage& usage) {
  writer_.Begin(choice, out_);
  out_->append(",\"delta\":{\"content\":\"");
  AppendEscaped(text, out_);
  out_->append("\"},\"logprobs\":");
  if (delta != nullptr && shape_.top_logprobs) {
    AppendLogprobs(*delta);
  } else {
    out_->append("null");
  }
  const bool final = delta != nullptr && delta->finish_reason;
  if (final) {
    AppendFinish(*delta, out_);
  } else {
    out_->append(",\"finish_reason\":null");
  }
  out_->append(",\"token_ids\":");
  if (delta != nullptr && shape_.choice.return_token_ids) {
    AppendTokenIds(delta->token_ids, out_);
  } else {
    out_->append("null");
  }
  if (!final) {
    writer_.End(",\"kv_transfer_params\":null", Shown(usage), out_);
    return;
  }
  std::string rest = ",\"kv_transfer_params\":" + DumpJson(UnpackJson(delta->kv_transfer_params));
  if (!shape_.usage.at_end && !writer_.fingerprint_json().empty()) {
    rest += ",\"system_fingerprint\":" + writer_.fingerprint_json();
  }
  writer_.End(rest, Shown(usage), out_);
}

void ChatStream::AppendLogprobs(const OutputDelta& delta) {
  std::vector<PositionLogprobs> positions;
  for (const wire::LogprobsRows& rows : delta.logprobs) {
    AppendPositionLogprobs(tokenizer_, shape_.choice.logprobs_style, rows, &positions);
  }
  out_->append(DumpJson(ChatLogprobsJson(positions, *shape_.top_logprobs)));
}

void ChatStream::OnEnd(const Usage& usage) {
  if (shape_.usage.at_end) writer_.AppendUsage(usage, out_);
  ChunkWriter::AppendDone(out_);
}

StatusOr<PreparedRequest> PrepareChat(const Json& body, PrepareInput input) {
  ASSIGN_OR_RETURN(ChatRequest request, ParseChatRequest(body));
  return PrepareAnswer<ChatStream, ChatResponse>(
      std::move(request), "chatcmpl-", std::move(input),
      [](const ChatRequest& parsed, const PrepareInput& with) {
        return MakeShape(parsed, with.input_processor->config(), *with.options);
      });
}

Awaitable<void> HandleChatCompletions(Exchange& exchange, ApiContext* context) {
  return ServeGeneration(exchange, context, &PrepareChat);
}

}  // namespace tandem
