#include "frontend/api/chat_completions.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/api/chat_images.h"
#include "frontend/api/collected_choice.h"
#include "frontend/api/render.h"
#include "frontend/openai/chat_request.h"

namespace tandem {
namespace {

using std::string_view_literals::operator""sv;  // gcc 12 calls strlen for other literals

// What of the request the response depends on.
struct ChatShape {
  bool return_token_ids = false;
  std::optional<int64_t> top_logprobs;  // empty: no logprobs
  bool show_prompt_logprobs = false;
  bool return_prompt_text = false;
  std::string role;
  // Of each conversation's last message, shown before the generated text; all choices of a request
  // with one conversation show the first.
  std::vector<std::string> echoed_texts;
  const std::string& echoed_text(size_t choice) const {
    return echoed_texts[echoed_texts.size() == 1 ? 0 : choice];
  }
  bool is_batch = false;
  bool parsed = false;        // reasoning or calls are split from the content
  bool forces_calls = false;  // a message of calls alone has an empty content, not none
};

// ---- One body ----

}  // namespace

Json ChatMessageJson(const std::string& role, bool forces_calls, const CollectedChoice& choice) {
  const auto or_null = [](bool present, const std::string& text) {
    return present ? Json(text) : Json(nullptr);
  };
  const bool no_content = choice.content.empty() && !forces_calls &&
                          (!choice.tool_calls.empty() || !choice.reasoning.empty());
  Json message = {{"role", role},       {"content", or_null(!no_content, choice.content)},
                  {"refusal", nullptr}, {"annotations", nullptr},
                  {"audio", nullptr},   {"function_call", nullptr}};
  for (const ToolCallDelta& call : choice.tool_calls) {
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  message["reasoning"] = or_null(!choice.reasoning.empty(), choice.reasoning);
  return message;
}

namespace {

class ChatBody final : public ResponseWriter {
 public:
  ChatBody(ChatShape shape, WriterInput input);
  void WriteDelta(int choice, MessageDelta& delta, const Usage& usage) override;
  void WriteEnd(const Usage& usage) override;

 private:
  const ChatShape shape_;
  const WriterInput input_;
  std::vector<CollectedChoice> choices_;
  std::vector<PositionLogprobs> prompt_logprobs_;
  wire::RawValue kv_transfer_params_;
  wire::RawValue ec_transfer_params_;
};

ChatBody::ChatBody(ChatShape shape, WriterInput input)
    : ResponseWriter(input.out),
      shape_(std::move(shape)),
      input_(std::move(input)),
      choices_(input_.prompts.size()) {
  for (size_t i = 0; i < choices_.size(); ++i) choices_[i].content = shape_.echoed_text(i);
}

void ChatBody::WriteDelta(int index, MessageDelta& delta, const Usage&) {
  if (index == 0) {  // all choices have the same prompt
    AppendPositionLogprobs(*input_.tokenizer, input_.logprobs_style, delta.extras().prompt_logprobs,
                           &prompt_logprobs_);
  }
  if (delta.finish_reason) {
    kv_transfer_params_ = delta.extras().kv_transfer_params;
    ec_transfer_params_ = delta.extras().ec_transfer_params;
  }
  choices_[static_cast<size_t>(index)].Append(delta);
}

void ChatBody::WriteEnd(const Usage& usage) {
  const bool ids = shape_.return_token_ids;
  const bool one_prompt = !shape_.is_batch;
  const ChoicePrompt& prompt = input_.prompts.front();
  Json choices = Json::array();
  for (const CollectedChoice& choice : choices_) {
    choices.push_back(
        {{"index", choices.size()},
         {"message", ChatMessageJson(shape_.role, shape_.forces_calls, choice)},
         {"logprobs", shape_.top_logprobs ? ChatLogprobsJson(choice.logprobs, *shape_.top_logprobs)
                                          : Json(nullptr)},
         {"finish_reason", choice.finish_reason},
         {"stop_reason", StopReasonJson(choice.stop_reason)},
         {"token_ids", ids ? TokenIdsJson(choice.token_ids) : Json(nullptr)},
         {"routed_experts", nullptr},
         {"weight_versions", nullptr}});
  }
  out_->append(DumpJson(
      {{"id", input_.head.id},
       {"object", "chat.completion"},
       {"created", input_.head.created},
       {"model", input_.head.model},
       {"choices", std::move(choices)},
       {"service_tier", nullptr},
       {"system_fingerprint", FingerprintJson(input_.head)},
       {"usage", UsageJson(usage)},
       {"prompt_logprobs", one_prompt && shape_.show_prompt_logprobs
                               ? PromptLogprobsJson(prompt_logprobs_)
                               : Json(nullptr)},
       {"prompt_token_ids", one_prompt && ids ? TokenIdsJson(*prompt.token_ids) : Json(nullptr)},
       {"prompt_text",
        one_prompt && shape_.return_prompt_text ? Json(*prompt.text) : Json(nullptr)},
       {"kv_transfer_params", UnpackJson(kv_transfer_params_)},
       {"ec_transfer_params", UnpackJson(ec_transfer_params_)},
       {"metrics", MetricsJson(usage)}}));
}

// ---- Events ----

void AppendToolCalls(const std::vector<ToolCallDelta>& calls, std::string* out) {
  for (const ToolCallDelta& call : calls) {
    out->append(&call == &calls.front() ? "[" : ",").append("{\"index\":"sv);
    out->append(std::to_string(call.index));
    if (!call.id.empty()) {
      out->append(",\"id\":"sv);
      AppendQuoted(call.id, out);
      out->append(",\"type\":\"function\""sv);
    }
    out->append(",\"function\":{"sv);
    // With the call's first delta, also where the model gave none: clients read it there.
    if (!call.id.empty()) {
      out->append("\"name\":"sv);
      AppendQuoted(call.name, out);
      out->push_back(',');
    }
    out->append("\"arguments\":"sv);
    AppendQuoted(call.arguments, out);
    out->append("}}"sv);
  }
  out->push_back(']');
}

// ,"delta":{…}: what there is of reasoning, content and tool calls. parsed: nothing where there is
// none; else the content.
void AppendMessage(const MessageDelta& delta, bool parsed, std::string* out) {
  if (parsed && !delta.has_message()) {
    out->append(",\"delta\":{}"sv);
    return;
  }
  const bool calls = !delta.tool_calls.empty();
  const char* separator = ",\"delta\":{";
  if (!delta.reasoning.empty()) {
    out->append(separator).append("\"reasoning\":"sv);
    AppendQuoted(delta.reasoning, out);
    separator = ",";
  }
  if (!delta.content.empty() || (delta.reasoning.empty() && !calls)) {
    out->append(separator).append("\"content\":"sv);
    AppendQuoted(delta.content, out);
    separator = ",";
  }
  if (calls) {
    out->append(separator).append("\"tool_calls\":"sv);
    AppendToolCalls(delta.tool_calls, out);
  }
  out->push_back('}');
}

// Each choice's events: its role, the echoed text, the deltas, its end.
class ChatStream final : public ResponseWriter {
 public:
  ChatStream(ChatShape shape, WriterInput input);
  void WriteDelta(int choice, MessageDelta& delta, const Usage& usage) override;
  void WriteEnd(const Usage& usage) override;

 private:
  void AppendRole(int choice, const Usage& usage);
  void AppendChunk(int choice, const MessageDelta& delta, bool generated, const Usage& usage);
  const Usage* Shown(const Usage& usage) const {
    return input_.stream_usage.on_every_chunk ? &usage : nullptr;
  }

  const ChatShape shape_;
  const WriterInput input_;
  const ChunkWriter chunk_;
  std::vector<bool> started_;  // by choice
};

ChatStream::ChatStream(ChatShape shape, WriterInput input)
    : ResponseWriter(input.out),
      shape_(std::move(shape)),
      input_(std::move(input)),
      chunk_(input_.head, "chat.completion.chunk"),
      started_(input_.prompts.size()) {}

void ChatStream::WriteDelta(int choice, MessageDelta& delta, const Usage& usage) {
  if (!started_[static_cast<size_t>(choice)]) {
    started_[static_cast<size_t>(choice)] = true;
    AppendRole(choice, usage);
    const std::string& echoed_text = shape_.echoed_text(0);  // a batch is not streamed
    if (!echoed_text.empty()) {
      MessageDelta echo;
      echo.content = echoed_text;
      AppendChunk(choice, echo, false, usage);
    }
  }
  // The first delta of a parsed choice may have announced the role alone.
  const bool shows_tokens =
      (shape_.top_logprobs || shape_.return_token_ids) && !delta.token_ids.empty();
  if (shape_.parsed && !delta.has_message() && !delta.finish_reason && !shows_tokens) return;
  AppendChunk(choice, delta, true, usage);
}

void ChatStream::AppendRole(int choice, const Usage& usage) {
  chunk_.Begin(choice, out_);
  out_->append(",\"delta\":{\"role\":"sv);
  AppendQuoted(shape_.role, out_);
  out_->append(",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null"sv);
  std::string rest = ",\"prompt_token_ids\":";
  const ChoicePrompt& prompt = input_.prompts[static_cast<size_t>(choice)];
  if (shape_.return_token_ids) {
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
  chunk_.End(rest, Shown(before), out_);
}

// generated: false for the echoed text, which has no tokens of its own.
void ChatStream::AppendChunk(int choice, const MessageDelta& delta, bool generated,
                             const Usage& usage) {
  chunk_.Begin(choice, out_);
  const bool shows_tokens = generated && (shape_.top_logprobs || shape_.return_token_ids);
  const bool only_content =
      !delta.content.empty() && delta.reasoning.empty() && delta.tool_calls.empty();
  if (only_content && !shows_tokens && !delta.finish_reason) {  // nearly every chunk
    out_->append(",\"delta\":{\"content\":\""sv);
    AppendEscaped(delta.content, out_);
    out_->append("\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null"sv);
    chunk_.End(kNoKvTransfer, Shown(usage), out_);
    return;
  }
  AppendMessage(delta, shape_.parsed, out_);
  out_->append(",\"logprobs\":"sv);
  if (generated && shape_.top_logprobs) {
    out_->append(DumpJson(ChatLogprobsJson(delta.logprobs, *shape_.top_logprobs)));
  } else {
    out_->append("null"sv);
  }
  if (delta.finish_reason) {
    AppendFinish(delta, out_);
  } else {
    out_->append(",\"finish_reason\":null"sv);
  }
  out_->append(",\"token_ids\":"sv);
  if (generated && shape_.return_token_ids) {
    AppendTokenIds(delta.token_ids, out_);
  } else {
    out_->append("null"sv);
  }
  if (!delta.finish_reason) return chunk_.End(kNoKvTransfer, Shown(usage), out_);
  std::string rest = KvTransferField(delta);
  if (!input_.stream_usage.at_end && !chunk_.fingerprint_json().empty()) {
    rest += ",\"system_fingerprint\":" + chunk_.fingerprint_json();
  }
  chunk_.End(rest, Shown(usage), out_);
}

void ChatStream::WriteEnd(const Usage& usage) {
  if (input_.stream_usage.at_end) chunk_.AppendUsage(usage, out_);
  ChunkWriter::AppendDone(out_);
}

// ---- The call ----

// A conversation, or a batch of them that becomes one response with a choice for each.
class ChatCall final : public GenerationCall {
 public:
  ChatCall(const ApiContext& context, bool is_batch)
      : context_(&context), input_processor_(*context.input_processor) {
    shape_.is_batch = is_batch;
  }

  const char* id_prefix() const override { return "chatcmpl-"; }
  RequestType request_type() const override { return RequestType::kChatCompletions; }

  Status Parse(JsonDocument body) override {
    if (shape_.is_batch) {
      ASSIGN_OR_RETURN(requests_, ParseChatBatch(std::move(body.mutable_value()),
                                                 input_processor_.config().max_fanout_bytes));
    } else {
      ASSIGN_OR_RETURN(ChatRequest request, ParseChatRequest(std::move(body.mutable_value())));
      requests_.push_back(std::move(request));
    }
    for (const ChatRequest& each : requests_) RETURN_IF_ERROR(input_processor_.CheckImages(each));
    return OkStatus();
  }

  bool needs_fetch() const override {
    return std::any_of(requests_.begin(), requests_.end(), NeedsImages);
  }
  Awaitable<Status> Fetch(Exchange& exchange, std::optional<double> deadline) override {
    return LoadImages(exchange, context_, deadline, requests_);
  }

  GenerationRequest& request() override { return requests_.front(); }
  const ChatRequest* chat() const override { return &requests_.front(); }

  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    const ChatRequest& request = requests_.front();
    shape_.return_token_ids = request.return_token_ids;
    if (request.logprobs) {
      shape_.top_logprobs = request.logprob_token_ids.empty() ? request.top_logprobs : -1;
    }
    shape_.return_prompt_text = request.return_prompt_text;
    shape_.role = input_processor_.config().response_role;
    for (const ChatRequest& each : requests_) {
      shape_.echoed_texts.push_back(each.echo ? EchoedText(each, shape_.role) : std::string());
    }
    ASSIGN_OR_RETURN(ProcessedRequest processed,
                     shape_.is_batch ? input_processor_.ProcessBatch(std::move(requests_), context)
                                     : input_processor_.Process(std::move(requests_[0]), context));
    shape_.show_prompt_logprobs = processed.has_prompt_logprobs();
    shape_.parsed = processed.message != nullptr;
    shape_.forces_calls = shape_.parsed && processed.message->forces_calls();
    return processed;
  }

  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    if (input.stream) return std::make_unique<ChatStream>(shape_, std::move(input));
    return std::make_unique<ChatBody>(shape_, std::move(input));
  }

 private:
  const ApiContext* const context_;
  const InputProcessor& input_processor_;
  std::vector<ChatRequest> requests_;  // more than one in a batch only
  ChatShape shape_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeChatCompletion(const ApiContext& context) {
  return std::make_unique<ChatCall>(context, false);
}

std::unique_ptr<GenerationCall> MakeChatBatch(const ApiContext& context) {
  return std::make_unique<ChatCall>(context, true);
}

}  // namespace tandem
