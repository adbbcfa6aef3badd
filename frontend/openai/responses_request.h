#pragma once

// The body of POST /v1/responses: struct and field table. Sampling fields are those of
// GenerationRequest; what the API only repeats in its response is kept as it came.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontend/openai/generation_request.h"

namespace tandem {

struct ResponsesRequest : GenerationRequest {
  JsonDocument input;  // a text or a list of items
  std::optional<std::string> instructions;
  JsonDocument previous_input_messages;  // list of chat messages or null
  std::optional<std::string> previous_response_id;

  std::optional<int64_t> max_output_tokens;
  std::string truncation = "disabled";
  std::vector<std::string> include;
  std::optional<int64_t> top_logprobs;

  JsonDocument tools;        // array or null
  JsonDocument tool_choice;  // null, a string or {"type": "function", "name": …}
  bool parallel_tool_calls = true;
  JsonDocument text;       // object or null
  JsonDocument reasoning;  // object or null
  bool include_reasoning = true;
  JsonDocument chat_template_kwargs;  // object or null
  JsonDocument mm_processor_kwargs;   // object or null

  bool store = true;
  bool background = false;
  bool enable_response_messages = false;

  JsonDocument echoed;  // object: fields without effect (Ignored) that the response repeats

  // Logprobs of the message's tokens are part of the response.
  bool shows_logprobs() const;
};

Status ParseInput(Json& value, ResponsesRequest* out);
Status ParsePreviousMessages(Json& value, ResponsesRequest* out);
Status ParseResponseTools(Json& value, ResponsesRequest* out);
Status ParseResponseToolChoice(Json& value, ResponsesRequest* out);
Status ParseTextOptions(Json& value, ResponsesRequest* out);
Status ParseReasoningOptions(Json& value, ResponsesRequest* out);
Status ParseInclude(Json& value, ResponsesRequest* out);
Status ParseTruncation(Json& value, ResponsesRequest* out);
Status ParsePromptTemplate(Json& value, ResponsesRequest* out);  // always refused
Status ParseTemplateVariables(Json& value, ResponsesRequest* out);
Status ParseResponseProcessorKwargs(Json& value, ResponsesRequest* out);

// Refuses fields that contradict each other.
Status CheckResponsesRequest(const ResponsesRequest& request);

inline constexpr ApiField<ResponsesRequest> kResponsesFields[] = {
    {"input", &ParseInput, {}, "A text, or the conversation as items.", field_schema::kInput},
    {"instructions", &ResponsesRequest::instructions, {}, "The first system message."},
    {"previous_input_messages",
     &ParsePreviousMessages,
     {},
     "Chat messages that come before the input.",
     field_schema::kObjects},
    {"previous_response_id",
     &ResponsesRequest::previous_response_id,
     {1, 256},
     "Continue this stored response's conversation."},
    {"max_output_tokens",
     &ResponsesRequest::max_output_tokens,
     {1},
     "Most tokens to generate; absent: the room that is left."},
    {"truncation",
     &ParseTruncation,
     {},
     "auto cuts a prompt that is too long; else disabled.",
     field_schema::kTruncation},
    {"include",
     &ParseInclude,
     {},
     "message.output_text.logprobs adds logprobs.",
     field_schema::kTexts},
    {"top_logprobs",
     &ResponsesRequest::top_logprobs,
     {0, kMaxTokenId},
     "Logprobs of the n most likely tokens too, when logprobs are included."},
    {"tools",
     &ParseResponseTools,
     {},
     "Functions, custom tools and namespaces of them.",
     field_schema::kObjects},
    {"tool_choice",
     &ParseResponseToolChoice,
     {},
     "none, auto, required or one tool.",
     field_schema::kTextOrObject},
    {"parallel_tool_calls",
     &ResponsesRequest::parallel_tool_calls,
     {},
     "false: calls after the first are dropped."},
    {"text", &ParseTextOptions, {}, "{format}: the form of the output.", field_schema::kObject},
    {"reasoning",
     &ParseReasoningOptions,
     {},
     "{effort}: as reasoning_effort of chat.",
     field_schema::kObject},
    {"include_reasoning",
     &ResponsesRequest::include_reasoning,
     {},
     "false: the response has no reasoning item."},
    {"chat_template_kwargs",
     &ParseTemplateVariables,
     {},
     "Variables for the template.",
     field_schema::kObject},
    {"mm_processor_kwargs",
     &ParseResponseProcessorKwargs,
     {},
     "How images are prepared; needs --trust-request-mm-kwargs.",
     field_schema::kObject},
    {"media_io_kwargs", Unsupported{}, {}, "How media are decoded."},
    {"store", &ResponsesRequest::store, {}, "Keep the response, where the server does."},
    {"background", &ResponsesRequest::background, {}, "Respond at once, to be fetched later."},
    {"conversation", Unsupported{}, {}, "Conversations that a server keeps."},
    {"prompt", &ParsePromptTemplate, {}, "A prompt template; refused."},
    {"metadata", Ignored{}, {}, "Repeated in the response."},
    {"user", Ignored{}, {}, "Repeated in the response."},
    {"service_tier", Ignored{}, {}, "Repeated in the response."},
    {"safety_identifier", Ignored{}, {}, "Repeated in the response."},
    {"prompt_cache_key", Ignored{}, {}, "Repeated in the response."},
    {"prompt_cache_options", Ignored{}, {}, "Repeated in the response."},
    {"prompt_cache_retention", Ignored{}, {}, "Repeated in the response."},
    {"max_tool_calls", Ignored{}, {}, "Repeated in the response."},
    {"enable_response_messages",
     &ResponsesRequest::enable_response_messages,
     {},
     "The prompt and the output, as text and tokens, in the response; not in the background."},
};

// Fields of GenerationRequest that the Responses API does not have: ignored with a warning.
inline constexpr RetiredField kNotOfResponses[] = {
    {"max_tokens", "max_output_tokens"},
    {"n", ""},
    {"echo", ""},
    {"response_format", "text.format"},
    {"prompt_logprobs", ""},
    {"stream_options", ""},
    {"truncate_prompt_tokens", "truncation"},
    {"truncation_side", ""},
    {"logprob_token_ids", ""},
    {"return_token_ids", "enable_response_messages"}};

StatusOr<ResponsesRequest> ParseResponsesRequest(Json body);

}  // namespace tandem
