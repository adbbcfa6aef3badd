#include "frontend/api/response_object.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/api/error.h"
#include "frontend/api/or_null.h"
#include "frontend/api/render.h"

namespace tandem {
namespace {

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

// What went into the model, or came out of it, as vLLM shows it.
Json RawMessages(const std::string& text, const std::vector<TokenId>& token_ids) {
  return Json::array(
      {{{"message", text}, {"tokens", TokenIdsJson(token_ids)}, {"type", "raw_message_tokens"}}});
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

}  // namespace

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

// ---- Writers ----

ResponseObjectWriter::ResponseObjectWriter(ResponseShape shape, WriterInput input,
                                           ResponseEvents* events)
    : ResponseWriter(input.out),
      tools_(std::move(shape.tools)),
      object_(std::move(shape.object)),
      items_(&tools_, shape.top_logprobs, events),
      shows_messages_(shape.shows_messages),
      input_(std::move(input)) {
  Json& object = object_.mutable_value();
  object["id"] = input_.head.id;
  object["created_at"] = input_.head.created;
  object["model"] = input_.head.model;
}

void ResponseObjectWriter::StoreIn(ResponseStore* store, std::string conversation) {
  store_ = store;
  conversation_ = std::move(conversation);
}

void ResponseObjectWriter::WriteDelta(int, MessageDelta& delta, const Usage&) {
  items_.Append(delta);
  if (shows_messages_) {
    token_ids_.insert(token_ids_.end(), delta.token_ids.begin(), delta.token_ids.end());
  }
  if (!delta.finish_reason) return;
  finish_reason_ = *delta.finish_reason;
  kv_transfer_params_ = delta.extras().kv_transfer_params;
  ec_transfer_params_ = delta.extras().ec_transfer_params;
}

void ResponseObjectWriter::WriteCancelled(const Usage& usage) {
  finish_reason_ = FinishReason::kAbort;
  WriteEnd(usage);
}

void ResponseObjectWriter::Finish(const Usage& usage) {
  const bool is_cut = finish_reason_ == FinishReason::kLength;
  const bool is_aborted = finish_reason_ == FinishReason::kAbort;
  items_.End(!is_cut && !is_aborted);
  Json& object = object_.mutable_value();
  object["status"] = is_aborted ? "cancelled" : is_cut ? "incomplete" : "completed";
  if (is_cut) object["incomplete_details"] = {{"reason", "max_output_tokens"}};
  object["output"] = items_.output();
  object["usage"] = ResponseUsageJson(usage);
  object["kv_transfer_params"] = UnpackJson(kv_transfer_params_);
  object["ec_transfer_params"] = UnpackJson(ec_transfer_params_);
  if (shows_messages_) {
    const ChoicePrompt& prompt = input_.prompts.front();
    const bool no_special_tokens = input_.logprobs_style.skip_special_tokens;
    object["input_messages"] = RawMessages(*prompt.text, *prompt.token_ids);
    object["output_messages"] =
        RawMessages(input_.tokenizer->Decode(token_ids_, no_special_tokens), token_ids_);
  }
  if (store_ != nullptr) {
    store_->Put(object["id"].get<std::string>(),
                {.body = DumpJson(object), .conversation = std::move(conversation_)});
  }
}

std::string ResponseObjectWriter::Body(const char* status) {
  Json& shown = object_.mutable_value()["status"];
  Json kept = std::exchange(shown, status);
  std::string body = DumpJson(object());
  shown = std::move(kept);
  return body;
}

std::string ResponseObjectWriter::FailedBody(const Status& why) {
  items_.End(/*is_whole=*/false);
  Json& object = object_.mutable_value();
  object["output"] = items_.output();
  object["error"] = {{"code", "server_error"}, {"message", ToApiError(why).message}};
  return Body("failed");
}

std::string ResponseObjectWriter::EndedBody() const { return DumpJson(object()); }

namespace {

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
    Begin();
    ResponseObjectWriter::WriteDelta(choice, delta, usage);
  }

  void WriteEnd(const Usage& usage) override {
    Begin();
    Finish(usage);
    const bool completed = object()["status"] == "completed";
    events.Append(completed ? "response.completed" : "response.incomplete",
                  {{"response", object()}});
  }

  void WriteError(const Status& status) override {
    Begin();
    const ApiError error = ToApiError(status);
    events.Append("error", {{"code", std::to_string(error.http_status)},
                            {"message", error.message},
                            {"param", error.param.empty() ? Json(nullptr) : Json(error.param)}});
  }

 private:
  void Begin() {
    if (std::exchange(has_begun_, true)) return;
    events.Append("response.created", {{"response", object()}});
    events.Append("response.in_progress", {{"response", object()}});
  }

  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<ResponseObjectWriter> MakeResponseWriter(ResponseShape shape, WriterInput input) {
  if (input.stream) return std::make_unique<ResponseStream>(std::move(shape), std::move(input));
  return std::make_unique<ResponseBody>(std::move(shape), std::move(input));
}

}  // namespace tandem
