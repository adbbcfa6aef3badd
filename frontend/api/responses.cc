#include "frontend/api/responses.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "frontend/api/render.h"
#include "frontend/api/response_items.h"
#include "frontend/openai/responses_input.h"

namespace tandem {
namespace {

// What of the request the response depends on.
struct ResponseShape {
  JsonDocument object;  // the response without what only the run gives
  ResponseTools tools;
  std::optional<int64_t> top_logprobs;  // empty: no logprobs
};

// ---- The response object ----

Json OrNull(const JsonDocument& value) { return value.is_null() ? Json(nullptr) : *value; }

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Tools as the client sent them, with the keys that clients expect of a function.
Json ShownTools(const JsonDocument& tools) {
  if (tools.is_null()) return Json::array();
  Json shown = *tools;
  for (Json& tool : shown) {
    if (tool.value("type", "") != "function") continue;
    for (const char* key : {"parameters", "strict", "description"}) {
      if (!tool.contains(key)) tool[key] = nullptr;
    }
  }
  return shown;
}

Json ShownToolChoice(const ResponsesRequest& request) {
  if (!request.tool_choice.is_null() && request.tool_choice->is_object()) {
    return *request.tool_choice;
  }
  if (request.tools.is_null()) return "none";
  return request.tool_choice.is_null() ? Json("auto") : *request.tool_choice;
}

// All keys in their order; null where the run will tell.
Json ResponseObject(const ResponsesRequest& request, const wire::SamplingParams& sampling) {
  const auto echoed = [&request](const char* name) {
    const auto it = request.echoed->find(name);
    return it == request.echoed->end() ? Json(nullptr) : *it;
  };
  const Json tier = echoed("service_tier");
  return {{"id", nullptr},
          {"created_at", nullptr},
          {"incomplete_details", nullptr},
          {"instructions", OrNull(request.instructions)},
          {"metadata", echoed("metadata")},
          {"model", nullptr},
          {"object", "response"},
          {"output", Json::array()},
          {"parallel_tool_calls", request.parallel_tool_calls},
          {"temperature", sampling.temperature},
          {"tool_choice", ShownToolChoice(request)},
          {"tools", ShownTools(request.tools)},
          {"top_p", sampling.top_p},
          {"background", request.background},
          {"max_output_tokens", sampling.max_tokens},
          {"max_tool_calls", echoed("max_tool_calls")},
          {"previous_response_id", OrNull(request.previous_response_id)},
          {"prompt", nullptr},
          {"prompt_cache_options", echoed("prompt_cache_options")},
          {"prompt_cache_key", echoed("prompt_cache_key")},
          {"prompt_cache_retention", echoed("prompt_cache_retention")},
          {"reasoning", OrNull(request.reasoning)},
          {"safety_identifier", echoed("safety_identifier")},
          {"service_tier", tier.is_null() ? Json("auto") : tier},
          {"status", "in_progress"},
          {"text", OrNull(request.text)},
          {"top_logprobs", OrNull(request.top_logprobs)},
          {"truncation", request.truncation},
          {"usage", nullptr},
          {"user", echoed("user")},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"kv_transfer_params", nullptr},
          {"ec_transfer_params", nullptr},
          {"input_messages", nullptr},
          {"output_messages", nullptr}};
}

Json ResponseUsageJson(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details",
           {{"cached_tokens", usage.cached_tokens.value_or(0)},
            {"cache_write_tokens", usage.created_cache_tokens},
            {"input_tokens_per_turn", Json::array()},
            {"cached_tokens_per_turn", Json::array()}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details",
           {{"reasoning_tokens", usage.reasoning_tokens.value_or(0)},
            {"tool_output_tokens", 0},
            {"output_tokens_per_turn", Json::array()},
            {"tool_output_tokens_per_turn", Json::array()}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

// ---- Writers ----

// Collects the items; at the end it knows the whole response.
class ResponseObjectWriter : public ResponseWriter {
 public:
  ResponseObjectWriter(ResponseShape shape, WriterInput input, ResponseEvents* events)
      : ResponseWriter(input.out),
        tools_(std::move(shape.tools)),
        object_(std::move(shape.object)),
        items_(&tools_, shape.top_logprobs, events) {
    Json& object = object_.mutable_value();
    object["id"] = input.head.id;
    object["created_at"] = input.head.created;
    object["model"] = input.head.model;
  }

  void WriteDelta(int, MessageDelta& delta, const Usage&) override {
    items_.Append(delta);
    if (!delta.finish_reason) return;
    finish_reason_ = *delta.finish_reason;
    kv_transfer_params_ = std::move(delta.kv_transfer_params);
  }

 protected:
  const Json& object() const { return *object_; }

  // Ends the items and fills in what the run gave.
  void Finish(const Usage& usage) {
    const bool is_cut = finish_reason_ == FinishReason::kLength;
    const bool is_aborted = finish_reason_ == FinishReason::kAbort;
    items_.End(!is_cut && !is_aborted);
    Json& object = object_.mutable_value();
    object["status"] = is_aborted ? "cancelled" : is_cut ? "incomplete" : "completed";
    if (is_cut) object["incomplete_details"] = {{"reason", "max_output_tokens"}};
    object["output"] = items_.output();
    object["usage"] = ResponseUsageJson(usage);
    object["kv_transfer_params"] = UnpackJson(kv_transfer_params_);
  }

 private:
  const ResponseTools tools_;
  JsonDocument object_;
  ResponseItems items_;
  FinishReason finish_reason_ = FinishReason::kStop;
  wire::RawValue kv_transfer_params_;
};

class ResponseBody final : public ResponseObjectWriter {
 public:
  ResponseBody(ResponseShape shape, WriterInput input)
      : ResponseObjectWriter(std::move(shape), std::move(input), nullptr) {}

  void WriteEnd(const Usage& usage) override {
    Finish(usage);
    out_->append(DumpJson(object()));
  }
};

// The events of a stream; they need a home before the items that append to them.
struct OwnedEvents {
  ResponseEvents events;
};

class ResponseStream final : private OwnedEvents, public ResponseObjectWriter {
 public:
  ResponseStream(ResponseShape shape, WriterInput input)
      : OwnedEvents{ResponseEvents(input.out)},
        ResponseObjectWriter(std::move(shape), std::move(input), &events) {}

  void WriteDelta(int choice, MessageDelta& delta, const Usage& usage) override {
    if (!std::exchange(has_begun_, true)) {
      events.Append("response.created", {{"response", object()}});
      events.Append("response.in_progress", {{"response", object()}});
    }
    ResponseObjectWriter::WriteDelta(choice, delta, usage);
  }

  void WriteEnd(const Usage& usage) override {
    Finish(usage);
    const bool completed = object()["status"] == "completed";
    events.Append(completed ? "response.completed" : "response.incomplete",
                  {{"response", object()}});
  }

  void WriteError(const Status& status) override {
    const ApiError error = ToApiError(status);
    events.Append("error", {{"code", std::to_string(error.http_status)},
                            {"message", error.message},
                            {"param", error.param.empty() ? Json(nullptr) : Json(error.param)}});
  }

 private:
  bool has_begun_ = false;
};

// ---- The call ----

// A refusal of the chat request in the words of the body that it was made from.
Status InResponsesWords(const Status& status) {
  if (status.param() == "input_tokens" || status.param() == "input_text") {
    return FailedPreconditionError(status.message()).WithParam("input");
  }
  constexpr std::pair<std::string_view, const char*> kFields[] = {
      {"max_completion_tokens", "max_output_tokens"},
      {"messages", "input"},
      {"prompt", "input"},
      {"reasoning_effort", "reasoning"}};
  for (const auto& [chat_field, field] : kFields) {
    if (status.param() != chat_field) continue;
    std::string message = status.message();
    if (message.rfind(chat_field, 0) == 0) message.replace(0, chat_field.size(), field);
    return Status(status.code(), std::move(message)).WithParam(field);
  }
  return status;
}

class ResponseCall final : public GenerationCall {
 public:
  explicit ResponseCall(const ApiContext& context) : input_processor_(*context.input_processor) {}

  const char* id_prefix() const override { return "resp_"; }

  Status Parse(JsonDocument body) override {
    ASSIGN_OR_RETURN(request_, ParseResponsesRequest(std::move(body.mutable_value())));
    if (request_.background) {
      return FailedPreconditionError(
                 "This server does not keep responses and therefore does not support the "
                 "background mode.")
          .WithParam("background");
    }
    if (request_.previous_response_id) {
      return NotFoundError("Response with id '" + *request_.previous_response_id + "' not found.")
          .WithParam("response_id");
    }
    request_.store = false;
    auto converted = ToChatRequest(request_, JsonDocument());
    if (!converted.ok()) return InResponsesWords(converted.status());
    chat_ = std::move(converted->chat);
    shape_.tools = std::move(converted->tools);
    return OkStatus();
  }

  GenerationRequest& request() override { return chat_; }

  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    if (chat_.logprobs) {
      if (input_processor_.config().parsers.is_harmony) {
        return InvalidArgumentError("logprobs are not supported with gpt-oss models")
            .WithParam("include");
      }
      shape_.top_logprobs = chat_.top_logprobs;
    }
    auto processed = input_processor_.Process(std::move(chat_), context);
    if (!processed.ok()) return InResponsesWords(processed.status());
    shape_.object =
        JsonDocument(ResponseObject(request_, processed->requests.front().sampling_params));
    return processed;
  }

  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    if (input.stream) return std::make_unique<ResponseStream>(shape_, std::move(input));
    return std::make_unique<ResponseBody>(shape_, std::move(input));
  }

 private:
  const InputProcessor& input_processor_;
  ResponsesRequest request_;
  ChatRequest chat_;
  ResponseShape shape_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeResponse(const ApiContext& context) {
  return std::make_unique<ResponseCall>(context);
}

}  // namespace tandem
