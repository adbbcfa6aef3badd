#pragma once

// The bodies of POST /v1/chat/completions/derender and /v1/completions/derender: what
// /inference/v1/generate has returned, or one event of its stream, and the request that it was
// rendered from.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontend/openai/field_schemas.h"
#include "frontend/openai/generation_request.h"

namespace tandem {

// One response of /inference/v1/generate.
struct GeneratedTokens {
  struct Choice {
    int64_t index = 0;
    std::vector<int64_t> token_ids;
    std::optional<std::string> finish_reason;  // absent: a whole choice has stopped
    wire::StopReason stop_reason;
    JsonDocument logprobs;  // {"content": [{token_id, logprob, top_logprobs}]} or null
  };

  std::string request_id;
  std::vector<Choice> choices;
  std::vector<int64_t> prompt_token_ids;  // empty: unknown
  JsonDocument prompt_logprobs;
  JsonDocument kv_transfer_params;
};

// What the client of a stream passes on from one event to the next.
struct DerenderState {
  std::vector<int64_t> prior_token_ids;  // of earlier events
  bool role_sent = false;
};

// An event of a stream, and the state that the one before it gave.
struct DerenderEvent {
  bool stream = false;
  std::optional<GeneratedTokens> generate_chunk;
  DerenderState stream_state;
};

struct DerenderChatRequest : DerenderEvent {
  std::optional<std::string> model;
  std::optional<GeneratedTokens> generate_response;
  std::optional<int64_t> prompt_tokens;  // absent: their number
  std::vector<int64_t> prompt_token_ids;
  JsonDocument chat_request;  // object or null
};

struct DerenderCompletionRequest : DerenderEvent {
  std::optional<std::string> model;
  std::vector<GeneratedTokens> generate_responses;     // one per prompt
  std::vector<int64_t> prompt_tokens;                  // of each, or none; of an event one
  std::vector<std::vector<int64_t>> prompt_token_ids;  // likewise; one may be empty
  JsonDocument completion_request;                     // object or null
};

Status ParseChunk(Json& value, DerenderEvent* out);
Status ParseState(Json& value, DerenderEvent* out);
Status ParseGeneratedTokens(Json& value, DerenderChatRequest* out);
Status ParseOriginalChat(Json& value, DerenderChatRequest* out);
Status ParseGeneratedList(Json& value, DerenderCompletionRequest* out);
Status ParsePromptTokenIds(Json& value, DerenderCompletionRequest* out);
Status ParseOriginalCompletion(Json& value, DerenderCompletionRequest* out);

inline constexpr ApiField<DerenderEvent> kDerenderEventFields[] = {
    {"stream", &DerenderEvent::stream, {}, "One event: generate_chunk in place of a response."},
    {"generate_chunk",
     &ParseChunk,
     {},
     "An event of a stream of /inference/v1/generate, with one choice.",
     field_schema::kObject},
    {"stream_state",
     &ParseState,
     {},
     "stream_state of the event before it; null for the first.",
     field_schema::kObject},
};

inline constexpr ApiField<DerenderChatRequest> kDerenderChatFields[] = {
    {"model", &DerenderChatRequest::model, {}, "A served model name; absent: the first one."},
    {"generate_response",
     &ParseGeneratedTokens,
     {},
     "What /inference/v1/generate has returned.",
     field_schema::kObject},
    {"prompt_tokens",
     &DerenderChatRequest::prompt_tokens,
     {0, kMaxTokenId},
     "Tokens of the prompt, for usage."},
    {"prompt_token_ids",
     &DerenderChatRequest::prompt_token_ids,
     {0, kMaxTokenId},
     "The prompt, or its end: the text goes on from there. Absent: those of the response."},
    {"chat_request",
     &ParseOriginalChat,
     {},
     "The chat request; without it reasoning and calls stay in the content.",
     field_schema::kObject},
};

inline constexpr ApiField<DerenderCompletionRequest> kDerenderCompletionFields[] = {
    {"model", &DerenderCompletionRequest::model, {}, "A served model name; absent: the first one."},
    {"generate_responses",
     &ParseGeneratedList,
     {},
     "What /inference/v1/generate has returned for each prompt.",
     field_schema::kObjects},
    {"prompt_tokens",
     &DerenderCompletionRequest::prompt_tokens,
     {0, kMaxTokenId},
     "Tokens of each prompt, for usage."},
    {"prompt_token_ids",
     &ParsePromptTokenIds,
     {},
     "Each prompt, or its end, or null: the texts go on from there. Of an event one list.",
     R"({"type":"array"})"},
    {"completion_request",
     &ParseOriginalCompletion,
     {},
     "The completion request, with the same prompts.",
     field_schema::kObject},
};

StatusOr<DerenderChatRequest> ParseDerenderChatRequest(Json body);
StatusOr<DerenderCompletionRequest> ParseDerenderCompletionRequest(Json body);

}  // namespace tandem
