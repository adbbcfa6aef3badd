#pragma once

// The body of POST /v1/messages and /v1/messages/count_tokens (Anthropic's API): struct and field
// table. Parsing checks the form of messages, blocks and tools; chat_body.h turns the request into
// a chat request, whose parser checks the rest. Values and pure functions; any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "frontend/openai/field_schemas.h"
#include "frontend/openai/json.h"
#include "frontend/openai/parse.h"

namespace tandem {

struct MessagesRequest {
  std::optional<std::string> model;
  JsonDocument messages;  // non-empty array; roles and blocks are known and complete
  std::optional<int64_t> max_tokens;
  JsonDocument system;  // null, a string or text blocks
  std::vector<std::string> stop_sequences;
  bool stream = false;

  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;

  JsonDocument tools;          // null or an array of custom tools
  JsonDocument tool_choice;    // null or {"type", "name", "disable_parallel_tool_use"}
  JsonDocument thinking;       // null or {"type", "budget_tokens"}
  JsonDocument output_config;  // null or {"effort", "format"}

  std::optional<std::string> cache_salt;
  std::optional<bool> watermarking;
  JsonDocument kv_transfer_params;
  JsonDocument ec_transfer_params;
  JsonDocument vllm_xargs;
  JsonDocument chat_template_kwargs;
};

// Parsers of fields with a form of their own.
Status ParseAnthropicMessages(Json& value, MessagesRequest* out);
Status ParseMaxTokens(Json& value, MessagesRequest* out);
Status ParseSystem(Json& value, MessagesRequest* out);
Status ParseAnthropicTools(Json& value, MessagesRequest* out);
Status ParseAnthropicToolChoice(Json& value, MessagesRequest* out);
Status ParseThinking(Json& value, MessagesRequest* out);
Status ParseOutputConfig(Json& value, MessagesRequest* out);
Status ParsePassedKvTransferParams(Json& value, MessagesRequest* out);
Status ParsePassedEcTransferParams(Json& value, MessagesRequest* out);
Status ParsePassedXargs(Json& value, MessagesRequest* out);
Status ParsePassedTemplateKwargs(Json& value, MessagesRequest* out);

inline constexpr int64_t kMinThinkingBudget = 1024;  // tokens

inline constexpr ApiField<MessagesRequest> kMessagesFields[] = {
    {"model", &MessagesRequest::model, {}, "A served model name; absent: the first one."},
    {"messages",
     &ParseAnthropicMessages,
     {},
     "The conversation, as texts or content blocks.",
     field_schema::kBlockMessages},
    {"max_tokens",
     &ParseMaxTokens,
     {},
     "Most tokens to generate; count_tokens needs none.",
     field_schema::kPositive},
    {"system",
     &ParseSystem,
     {},
     "The first system message: a text or text blocks.",
     field_schema::kTextOrBlocks},
    {"stop_sequences", &MessagesRequest::stop_sequences, {1}, "Texts that end the response."},
    {"stream", &MessagesRequest::stream, {}, "Server-sent events."},
    {"temperature", &MessagesRequest::temperature, {0, 2}, "0 is greedy."},
    {"top_p",
     &MessagesRequest::top_p,
     {0, 1, true},
     "Sample from the smallest set with this mass."},
    {"top_k", &MessagesRequest::top_k, {-1, 2147483647}, "Most likely tokens kept; 0, -1: all."},
    {"tools",
     &ParseAnthropicTools,
     {},
     "Custom tools: {name, description, input_schema, strict}.",
     field_schema::kObjects},
    {"tool_choice",
     &ParseAnthropicToolChoice,
     {},
     "{\"type\": auto, any, tool (with name), none}.",
     field_schema::kObject},
    {"thinking",
     &ParseThinking,
     {},
     "{\"type\": enabled (with budget_tokens), disabled, adaptive}.",
     field_schema::kObject},
    {"output_config",
     &ParseOutputConfig,
     {},
     "{effort, format}; the format is a JSON schema.",
     field_schema::kObject},
    {"metadata", Ignored{}, {}, "Accepted, without effect."},
    {"service_tier", Ignored{}, {}, "Accepted, without effect."},
    {"cache_salt", &MessagesRequest::cache_salt, {1, 128}, "Separates cached prefixes."},
    {"kv_transfer_params",
     &ParsePassedKvTransferParams,
     {},
     "Passed to the engine.",
     field_schema::kObject},
    {"ec_transfer_params",
     &ParsePassedEcTransferParams,
     {},
     "Passed to the engine.",
     field_schema::kObject},
    {"watermarking",
     &MessagesRequest::watermarking,
     {},
     "false: without the watermark of an engine that has one."},
    {"return_mm_kwargs", Unsupported{"false"}, {}, "Older name: false is mm_payload none."},
    {"mm_payload", Unsupported{"\"none\""}, {}, "none: render returns no prepared images."},
    {"vllm_xargs",
     &ParsePassedXargs,
     {},
     "Extra arguments, passed to the engine.",
     field_schema::kObject},
    {"chat_template_kwargs",
     &ParsePassedTemplateKwargs,
     {},
     "Variables for the template.",
     field_schema::kObject},
    {"container", Unsupported{}, {}, "Tools that run at the server."},
    {"mcp_servers", Unsupported{"[]"}, {}, "Tools that run at the server."},
    {"output_format", Unsupported{}, {}, "The older name of output_config.format."},
};

StatusOr<MessagesRequest> ParseMessagesRequest(Json body);

}  // namespace tandem
