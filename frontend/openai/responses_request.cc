#include "frontend/openai/responses_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/openai/refuse.h"

namespace tandem {
namespace {

constexpr std::string_view kLogprobs = "message.output_text.logprobs";

// What a client may ask to include. Beyond logprobs it is part of items that this server never
// makes, or of reasoning that is never encrypted.
constexpr std::string_view kIncludable[] = {kLogprobs,
                                            "reasoning.encrypted_content",
                                            "code_interpreter_call.outputs",
                                            "computer_call_output.output.image_url",
                                            "file_search_call.results",
                                            "message.input_image.image_url",
                                            "web_search_call.action.sources",
                                            "web_search_call.results"};

Status ParseObject(Json& value, JsonDocument* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  *out = JsonDocument(std::move(value));
  return OkStatus();
}

}  // namespace

bool ResponsesRequest::shows_logprobs() const {
  return std::find(include.begin(), include.end(), kLogprobs) != include.end();
}

Status ParseInput(Json& value, ResponsesRequest* out) {
  if (!value.is_string() && !value.is_array()) {
    return WrongType("", "a string or a list of items", value);
  }
  if (value.empty()) return RefuseByName("input", "input must not be empty");
  out->input = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParsePreviousMessages(Json& value, ResponsesRequest* out) {
  if (!value.is_array()) return WrongType("", "a list of messages", value);
  out->previous_input_messages = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseResponseTools(Json& value, ResponsesRequest* out) {
  if (!value.is_array()) return WrongType("", "a list", value);
  if (!value.empty()) out->tools = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseResponseToolChoice(Json& value, ResponsesRequest* out) {
  if (!value.is_string() && !value.is_object())
    return WrongType("", "a string or an object", value);
  out->tool_choice = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseTextOptions(Json& value, ResponsesRequest* out) {
  return ParseObject(value, &out->text);
}

Status ParseReasoningOptions(Json& value, ResponsesRequest* out) {
  return ParseObject(value, &out->reasoning);
}

Status ParseTemplateVariables(Json& value, ResponsesRequest* out) {
  return ParseObject(value, &out->chat_template_kwargs);
}

Status ParseResponseProcessorKwargs(Json& value, ResponsesRequest* out) {
  return ParseObject(value, &out->mm_processor_kwargs);
}

Status ParseInclude(Json& value, ResponsesRequest* out) {
  if (!value.is_array()) return WrongType("", "a list of strings", value);
  for (const Json& item : value) {
    const auto known =
        std::find_if(std::begin(kIncludable), std::end(kIncludable),
                     [&item](std::string_view name) { return item.is_string() && item == name; });
    if (known == std::end(kIncludable)) {
      return ValueError("include", "must list only known parts of a response", item);
    }
    out->include.emplace_back(*known);
  }
  return OkStatus();
}

Status ParseTruncation(Json& value, ResponsesRequest* out) {
  if (value != "auto" && value != "disabled") {
    return ValueError("truncation", "must be auto or disabled", value);
  }
  out->truncation = value.get<std::string>();
  return OkStatus();
}

Status ParsePromptTemplate(Json&, ResponsesRequest*) {
  return RefuseByName("prompt", "prompt template is not supported");
}

Status CheckResponsesRequest(const ResponsesRequest& request) {
  if (request.background && !request.store) {
    return RefuseByName("background", "background can only be used when `store` is true");
  }
  if (request.background && request.enable_response_messages) {
    return RefuseByName("enable_response_messages",
                        "enable_response_messages is not available with background");
  }
  if (request.previous_response_id && !request.previous_input_messages.is_null()) {
    return RefuseByName(
        "previous_response_id",
        "Only one of `previous_input_messages` and `previous_response_id` can be set.");
  }
  return OkStatus();
}

}  // namespace tandem
