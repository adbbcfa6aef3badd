#include "frontend/api/messages.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/anthropic/chat_body.h"
#include "frontend/anthropic/messages_request.h"
#include "frontend/api/chat_images.h"
#include "frontend/api/content_blocks.h"
#include "frontend/api/error.h"
#include "frontend/api/message_events.h"
#include "frontend/api/models.h"
#include "frontend/api/render.h"
#include "frontend/openai/chat_request.h"

namespace tandem {
namespace {

using std::string_view_literals::operator""sv;

// ---- Requests ----

// A refusal of the chat request in the words of the body that it was made from.
Status InMessagesWords(Status status) {
  constexpr FieldName kNames[] = {{"max_completion_tokens", "max_tokens"},
                                  {"stop", "stop_sequences"},
                                  {"body.reasoning_effort", "body.output_config.effort"},
                                  {"reasoning_effort", "output_config.effort"},
                                  {"thinking_token_budget", "thinking.budget_tokens"}};
  return InWordsOfBody(kNames, std::move(status));
}

StatusOr<ChatRequest> ParseAsChat(Json body, const InputProcessor& input_processor,
                                  bool needs_max_tokens) {
  ASSIGN_OR_RETURN(MessagesRequest request, ParseMessagesRequest(std::move(body)));
  if (needs_max_tokens && !request.max_tokens) {
    BodyErrors errors;
    errors.AddForm("body.max_tokens", "is required");
    return errors.Result();
  }
  ASSIGN_OR_RETURN(Json body_of_chat,
                   ChatBodyOf(std::move(request), input_processor.template_traits()));
  StatusOr<ChatRequest> chat = ParseChatRequest(std::move(body_of_chat));
  if (!chat.ok()) return InMessagesWords(chat.status());
  RETURN_IF_ERROR(input_processor.CheckImages(*chat));
  return chat;
}

// ---- One body ----

// Collects blocks as the text of a JSON array.
class CollectedBlocks final : public BlockSink {
 public:
  std::string_view text() const {
    return blocks_.empty() ? R"({"type":"text","text":""})"sv : std::string_view(blocks_);
  }

 private:
  void BeginBlock(BlockKind kind, const ToolCallDelta* call) override {
    text_.clear();
    blocks_.append(blocks_.empty() ? ""sv : ","sv);
    if (kind == BlockKind::kThinking) blocks_.append(R"({"type":"thinking","thinking":)"sv);
    if (kind == BlockKind::kText) blocks_.append(R"({"type":"text","text":)"sv);
    if (kind != BlockKind::kToolUse) return;
    blocks_.append(R"({"type":"tool_use","id":)"sv);
    AppendQuoted(call->id, &blocks_);
    blocks_.append(R"(,"name":)"sv);
    AppendQuoted(call->name, &blocks_);
    blocks_.append(R"(,"input":)"sv);
  }
  void AppendToBlock(BlockKind, std::string_view text) override { text_ += text; }
  void EndBlock(BlockKind kind) override {
    if (kind == BlockKind::kToolUse) {
      blocks_.append(IsJsonObject(text_) ? std::string_view(text_) : "{}"sv);
    } else {
      AppendQuoted(text_, &blocks_);
    }
    if (kind == BlockKind::kThinking) {
      blocks_.append(R"(,"signature":)"sv);
      AppendQuoted(MakeSignature(), &blocks_);
    }
    blocks_.push_back('}');
  }

  // Arguments are left as they are, as in a stream. Those of a call that was cut off are no object
  // yet.
  static bool IsJsonObject(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    return begin != text.npos && text[begin] == '{' && Json::accept(text);
  }

  std::string blocks_;
  std::string text_;  // of the open block
};

class MessageBody final : public ResponseWriter {
 public:
  explicit MessageBody(WriterInput input)
      : ResponseWriter(input.out), head_(std::move(input.head)), blocks_(&collected_) {}

  void WriteDelta(int, MessageDelta& delta, const Usage&) override {
    blocks_.Add(delta);
    if (!delta.finish_reason) return;
    blocks_.End();
    stop_ = StopOf(delta, blocks_);
    kv_transfer_params_ = delta.extras().kv_transfer_params;
  }

  void WriteEnd(const Usage& usage) override {
    out_->append(R"({"id":)"sv);
    AppendQuoted(head_.id, out_);
    out_->append(R"(,"type":"message","role":"assistant","content":[)"sv).append(collected_.text());
    out_->append(R"(],"model":)"sv);
    AppendQuoted(head_.model, out_);
    out_->append(R"(,"stop_reason":)"sv);
    AppendQuoted(stop_.reason, out_);
    if (stop_.reason == "stop_sequence") {
      out_->append(R"(,"stop_sequence":)"sv);
      AppendQuoted(stop_.sequence, out_);
    }
    out_->append(R"(,"usage":)"sv).append(DumpJson(MessageUsageJson(usage)));
    if (!kv_transfer_params_.is_nil()) {
      out_->append(R"(,"kv_transfer_params":)"sv).append(DumpJson(UnpackJson(kv_transfer_params_)));
    }
    out_->push_back('}');
  }

 private:
  const ResponseHead head_;
  CollectedBlocks collected_;
  ContentBlocks blocks_;
  MessageStop stop_;
  wire::RawValue kv_transfer_params_;
};

// ---- Events ----

class MessageStream final : public ResponseWriter {
 public:
  explicit MessageStream(WriterInput input)
      : ResponseWriter(input.out), head_(std::move(input.head)), events_(out_) {}

  void WriteDelta(int, MessageDelta& delta, const Usage& usage) override {
    if (!std::exchange(started_, true)) events_.Start(head_, usage);
    events_.Add(delta);
    if (delta.finish_reason) events_.End(delta);
  }
  void WriteEnd(const Usage& usage) override { events_.Stop(usage); }
  void WriteError(const Status& status) override {
    out_->append("event: error\ndata: " + AnthropicErrorBody(ToApiError(status)) + "\n\n");
  }

 private:
  const ResponseHead head_;
  MessageEvents events_;
  bool started_ = false;
};

// ---- The call ----

class MessageCall final : public GenerationCall {
 public:
  explicit MessageCall(const ApiContext& context)
      : context_(&context), input_processor_(*context.input_processor) {}

  const char* id_prefix() const override { return "chatcmpl-"; }
  RequestType request_type() const override { return RequestType::kChatCompletions; }
  Response Error(const Status& status) const override { return AnthropicErrorResponse(status); }

  Status Parse(JsonDocument body) override {
    ASSIGN_OR_RETURN(request_,
                     ParseAsChat(std::move(body.mutable_value()), input_processor_, true));
    return OkStatus();
  }
  bool needs_fetch() const override { return NeedsImages(request_); }
  Awaitable<Status> Fetch(Exchange& exchange, std::optional<double> deadline) override {
    return LoadImages(exchange, context_, deadline, {&request_, 1});
  }
  GenerationRequest& request() override { return request_; }
  const ChatRequest* chat() const override { return &request_; }
  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    auto processed = input_processor_.Process(std::move(request_), context);
    if (!processed.ok()) return InMessagesWords(processed.status());
    return processed;
  }
  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    if (input.stream) return std::make_unique<MessageStream>(std::move(input));
    return std::make_unique<MessageBody>(std::move(input));
  }

 private:
  const ApiContext* const context_;
  const InputProcessor& input_processor_;
  ChatRequest request_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeMessage(const ApiContext& context) {
  return std::make_unique<MessageCall>(context);
}

namespace {

StatusOr<std::string> CountJson(ChatRequest& request, const InputProcessor& input_processor) {
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, input_processor.ChatTokens(request));
  return DumpJson({{"input_tokens", ids.size()},
                   {"context_management", {{"original_input_tokens", ids.size()}}}});
}

void RespondWithCount(Exchange& exchange, const StatusOr<std::string>& json) {
  exchange.Respond(json.ok() ? Response{200, *json, "application/json", {}}
                             : AnthropicErrorResponse(json.status()));
}

}  // namespace

Awaitable<void> HandleCountTokens(Exchange& exchange, ApiContext* context) {
  // Counted in the same job unless images are loaded first.
  ChatRequest request;
  auto work = [&request, body = std::move(exchange.mutable_request().body), context,
               adapters = context->adapters]() -> StatusOr<std::string> {
    ASSIGN_OR_RETURN(JsonDocument json, ParseJsonBody(body, context->options.json_limits));
    ASSIGN_OR_RETURN(request, ParseAsChat(std::move(json.mutable_value()),
                                          *context->input_processor, /*needs_max_tokens=*/false));
    RETURN_IF_ERROR(FindModel(context->options, *adapters, request.model).status());
    if (NeedsImages(request)) return std::string();
    return CountJson(request, *context->input_processor);
  };
  const auto result = co_await OnPool(context->text_pool, std::move(work));
  if (!result.ok() || !result->empty()) co_return RespondWithCount(exchange, result);
  const Status loaded = co_await LoadImages(exchange, context, std::nullopt, {&request, 1});
  if (!loaded.ok()) co_return RespondWithCount(exchange, loaded);
  auto rest = [&request, context] { return CountJson(request, *context->input_processor); };
  const auto counted = co_await OnPool(context->text_pool, std::move(rest));
  RespondWithCount(exchange, counted);
}

}  // namespace tandem
