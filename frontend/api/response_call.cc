#include "frontend/api/response_call.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/strings.h"
#include "frontend/api/error.h"

namespace tandem {
namespace {

constexpr std::string_view kNoStore =
    "This server keeps no responses (--enable-responses-api-store turns that on).";

constexpr FieldName kNames[] = {{"max_completion_tokens", "max_output_tokens"},
                                {"messages", "input"},
                                {"prompt", "input"},
                                {"reasoning_effort", "reasoning"},
                                {"body.reasoning_effort", "body.reasoning.effort"},
                                {"response_format", "text.format.schema"}};

// "tools[0].function.parameters" as "tools[2].parameters": a tool is a function without a level of
// its own, and stands where the request has it.
std::string FieldInResponses(std::string_view field, const ResponseTools& tools) {
  constexpr std::string_view kBegin = "tools[";
  constexpr std::string_view kEnd = "].function";
  const size_t end = field.find(kEnd);
  if (!field.starts_with(kBegin) || end == field.npos) return std::string(field);
  const auto index = ParseNumber<size_t>(field.substr(kBegin.size(), end - kBegin.size()));
  if (!index || *index >= tools.size()) return std::string(field);
  return tools[*index].field + std::string(field.substr(end + kEnd.size()));
}

// A refusal of the chat request in the words of the body that it was made from.
Status InResponsesWords(const Status& status, const ResponseTools& tools) {
  if (status.param() == "input_tokens" || status.param() == "input_text") {
    return FailedPreconditionError(status.message()).WithParam("input");
  }
  if (status.param().starts_with("tools[")) {
    return Status(status).WithParam(FieldInResponses(status.param(), tools));
  }
  return InWordsOfBody(kNames, status);
}

}  // namespace

ResponseCall::ResponseCall(const ApiContext& context)
    : context_(&context),
      input_processor_(*context.input_processor),
      store_(context.response_store) {}

Status ResponseCall::Parse(JsonDocument body) {
  ASSIGN_OR_RETURN(request_, ParseResponsesRequest(std::move(body.mutable_value())));
  if (store_ == nullptr) {
    request_.store = false;
    if (request_.background) {
      return FailedPreconditionError(
                 "This server does not support `store=True` and therefore does not support the "
                 "background mode. " +
                 std::string(kNoStore))
          .WithParam("background");
    }
    if (NeedsEarlier()) return NoSuchResponse(*request_.previous_response_id, kNoStore);
  }
  return NeedsEarlier() ? OkStatus() : Convert(JsonDocument());
}

Awaitable<Status> ResponseCall::Fetch(Exchange& exchange, std::optional<double> deadline) {
  if (NeedsEarlier()) return FetchEarlier();
  return LoadImages(exchange, context_, deadline, {&chat_, 1});
}

Awaitable<Status> ResponseCall::FetchEarlier() {
  auto found = co_await store_->Find(*request_.previous_response_id);
  if (!found.ok()) co_return found.status();
  if ((*found)->running) {
    co_return FailedPreconditionError("Response with id '" + *request_.previous_response_id +
                                      "' still runs; it can be continued once it has ended.")
        .WithParam("previous_response_id");
  }
  earlier_ = std::move(*found);
  co_return OkStatus();
}

Status ResponseCall::TakeFetched() {
  if (!NeedsEarlier()) return OkStatus();
  ASSIGN_OR_RETURN(JsonDocument messages, ParseJson(earlier_->conversation));
  ASSIGN_OR_RETURN(const JsonDocument response, ParseJson(earlier_->body));
  earlier_.reset();
  bool continue_final = false;  // new input follows
  RETURN_IF_ERROR(AppendItems((*response)["output"], &messages.mutable_value(), &continue_final));
  return Convert(messages);
}

Status ResponseCall::Convert(const JsonDocument& earlier) {
  auto converted = ToChatRequest(request_, earlier);
  if (!converted.ok()) return InResponsesWords(converted.status(), {});
  chat_ = std::move(converted->chat);
  shape_.tools = std::move(converted->tools);
  leaves_out_tools_ = converted->leaves_out_tools;
  messages_ = std::move(converted->conversation);
  is_converted_ = true;
  return InResponsesWords(input_processor_.CheckImages(chat_), shape_.tools);
}

StatusOr<ProcessedRequest> ResponseCall::Process(const RequestContext& context) {
  if (chat_.logprobs) {
    if (input_processor_.config().parsers.is_harmony) {
      return InvalidArgumentError("logprobs are not supported with gpt-oss models")
          .WithParam("include");
    }
    shape_.top_logprobs = chat_.top_logprobs;
  }
  if (request_.store) {
    conversation_ = DumpJson(*messages_);
    messages_ = JsonDocument();
    const auto num_bytes = static_cast<int64_t>(conversation_.size());
    if (num_bytes > store_->limits().num_bytes) {
      return InvalidArgumentError(
                 "the conversation has " + std::to_string(num_bytes) +
                 " bytes, but this server keeps at most " +
                 std::to_string(store_->limits().num_bytes) +
                 " bytes of responses; send store=false, or a shorter conversation")
          .WithParam("store");
    }
  }
  shape_.shows_messages = request_.enable_response_messages;
  chat_.return_prompt_text |= shape_.shows_messages;
  chat_.return_token_ids |= shape_.shows_messages;
  auto processed = input_processor_.Process(std::move(chat_), context);
  if (!processed.ok()) return InResponsesWords(processed.status(), shape_.tools);
  if (leaves_out_tools_ && processed->warning.empty()) {
    processed->warning =
        "tools of OpenAI's own (web_search, image_generation, local_shell, computer …) are left "
        "out";
  }
  shape_.object =
      JsonDocument(ResponseObject(request_, processed->requests.front().sampling_params));
  return processed;
}

Response ResponseCall::Error(const Status& status) const {
  return ErrorResponse(InResponsesWords(status, shape_.tools));
}

std::unique_ptr<ResponseObjectWriter> ResponseCall::MakeObjectWriter(WriterInput input) const {
  return MakeResponseWriter(shape_, std::move(input));
}

std::unique_ptr<ResponseWriter> ResponseCall::MakeWriter(WriterInput input) const {
  auto writer = MakeObjectWriter(std::move(input));
  if (request_.store) writer->StoreIn(store_, conversation_);
  return writer;
}

}  // namespace tandem
