#pragma once

// The body of POST /v1/chat/completions: struct and field table. Messages stay JSON, because chat
// templates may read any key of them. Their form is checked here: each is an object with a known
// role, whose content is a text, null or a list of parts: texts, images and embeddings. Images are
// taken out; {"type": "image"}, which templates know, stays in their place.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontend/openai/chat_image.h"
#include "frontend/openai/generation_request.h"

namespace tandem {

struct ChatRequest : GenerationRequest {
  JsonDocument messages;             // non-empty array of objects
  std::vector<ChatImage> images;     // in the order of the messages
  bool has_image_detail = false;     // an image asks for a resolution
  JsonDocument mm_processor_kwargs;  // object or null
  std::optional<int64_t> max_completion_tokens;
  bool logprobs = false;
  int64_t top_logprobs = 0;
  bool logprobs_of_content = false;  // no field: reasoning and calls have none in responses

  JsonDocument tools;        // array or null
  JsonDocument tool_choice;  // null, a string or {"type": "function", …}
  bool parallel_tool_calls = true;

  std::optional<bool> add_generation_prompt;  // absent: true unless continue_final_message
  bool continue_final_message = false;
  std::optional<std::string> chat_template;  // in place of the model's, where the server allows it
  JsonDocument chat_template_kwargs;         // object or null
  JsonDocument documents;                    // array or null
  std::optional<std::string> reasoning_effort;
  bool include_reasoning = true;
  bool return_prompt_text = false;
};

Status ParseMessages(Json& value, ChatRequest* out);
Status ParseTools(Json& value, ChatRequest* out);
Status ParseToolChoice(Json& value, ChatRequest* out);
Status ParseChatTemplateKwargs(Json& value, ChatRequest* out);
Status ParseDocuments(Json& value, ChatRequest* out);
Status ParseProcessorKwargs(Json& value, ChatRequest* out);

// Refuses fields that contradict each other.
Status CheckChatRequest(const ChatRequest& request);

inline constexpr ApiField<ChatRequest> kChatFields[] = {
    {"messages", &ParseMessages, {}, "The conversation.", field_schema::kMessages},
    {"max_completion_tokens",
     &ChatRequest::max_completion_tokens,
     {0},
     "Most tokens to generate; wins over max_tokens."},
    {"logprobs", &ChatRequest::logprobs, {}, "Logprobs of the sampled tokens."},
    {"top_logprobs",
     &ChatRequest::top_logprobs,
     {-1, kMaxTokenId},
     "Logprobs of the n most likely tokens too; needs logprobs; -1: the whole vocabulary."},
    {"tools",
     &ParseTools,
     {},
     "Functions that the model may call; shown to the template.",
     field_schema::kTools},
    {"tool_choice",
     &ParseToolChoice,
     {},
     "none, auto (the default with tools), required, or a function by its name.",
     field_schema::kToolChoice},
    {"parallel_tool_calls", &ChatRequest::parallel_tool_calls, {}, "false: at most one call."},
    {"functions", Retired{"tools"}, {}, "Gone from the API."},
    {"function_call", Retired{"tool_choice"}, {}, "Gone from the API."},
    {"add_generation_prompt",
     &ChatRequest::add_generation_prompt,
     {},
     "End the prompt with the start of the assistant's turn."},
    {"continue_final_message",
     &ChatRequest::continue_final_message,
     {},
     "Leave the last message open, so that the model continues it."},
    {"chat_template_kwargs",
     &ParseChatTemplateKwargs,
     {},
     "Variables for the template.",
     field_schema::kObject},
    {"documents",
     &ParseDocuments,
     {},
     "For templates that quote documents.",
     field_schema::kObjects},
    {"reasoning_effort", &ChatRequest::reasoning_effort, {}, "Passed to the template."},
    {"include_reasoning",
     &ChatRequest::include_reasoning,
     {},
     "false hides reasoning; without a reasoning parser there is none to hide."},
    {"return_prompt_text", &ChatRequest::return_prompt_text, {}, "Adds the rendered prompt."},
    {"chat_template",
     &ChatRequest::chat_template,
     {},
     "A template in place of the model's; needs --trust-request-chat-template."},
    {"media_io_kwargs", Unsupported{}, {}, "How media are decoded."},
    {"mm_processor_kwargs",
     &ParseProcessorKwargs,
     {},
     "How images are prepared; needs --trust-request-mm-kwargs.",
     field_schema::kObject},
};

StatusOr<ChatRequest> ParseChatRequest(Json body);
// The body of POST /v1/chat/completions/batch: messages is a list of conversations, each of which
// becomes a request with all the other fields. max_copied_bytes: of those copies.
StatusOr<std::vector<ChatRequest>> ParseChatBatch(Json body, int64_t max_copied_bytes);

// Brings messages into the form that chat templates expect, as vLLM does: each content as one text
// or as a list of parts, empty where there is none; arguments of earlier tool calls as objects; no
// other key with null.
// image_text: what stands for an image before a content that is one text.
JsonDocument MessagesForTemplate(JsonDocument messages, bool content_as_parts,
                                 std::string_view image_text = {});
// The server's defaults, over them chat_template_kwargs, over both reasoning_effort, which implies
// enable_thinking unless chat_template_kwargs have that. A value that is null or "auto" leaves the
// default. What a request has a field for is not among them.
JsonDocument TemplateVariables(const ChatRequest& request, const JsonDocument& defaults);
// For echo: the last message's text when its role is response_role, else empty.
std::string EchoedText(const ChatRequest& request, std::string_view response_role);

}  // namespace tandem
