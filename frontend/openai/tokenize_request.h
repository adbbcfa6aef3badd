#pragma once

// The bodies of POST /tokenize (a prompt, or a conversation) and POST /detokenize.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontend/openai/chat_request.h"

namespace tandem {

struct TokenizeRequest {
  std::optional<std::string> model;
  std::optional<std::string> prompt;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};

inline constexpr ApiField<TokenizeRequest> kTokenizeFields[] = {
    {"model", &TokenizeRequest::model, {}, "A served model name."},
    {"prompt", &TokenizeRequest::prompt, {}, "The text."},
    {"add_special_tokens", &TokenizeRequest::add_special_tokens, {}, "Add BOS and the like."},
    {"return_token_strs", &TokenizeRequest::return_token_strs, {}, "Adds each token's text."},
};

struct DetokenizeRequest {
  std::optional<std::string> model;
  std::optional<std::vector<int64_t>> tokens;
};

inline constexpr ApiField<DetokenizeRequest> kDetokenizeFields[] = {
    {"model", &DetokenizeRequest::model, {}, "A served model name."},
    {"tokens", &DetokenizeRequest::tokens, {0}, "Token ids."},
};

// A body with "messages" is a conversation: `chat` is set and `prompt` is not.
struct TokenizeBody {
  TokenizeRequest request;
  std::optional<ChatRequest> chat;
};

StatusOr<TokenizeBody> ParseTokenizeRequest(Json body);
StatusOr<DetokenizeRequest> ParseDetokenizeRequest(Json body);

}  // namespace tandem
