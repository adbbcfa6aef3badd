#pragma once

// The body of POST /v1/completions: struct and field table.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "frontend/openai/generation_request.h"

namespace tandem {

// One or several prompts, as text or as token ids; empty when absent.
using TextPrompts = std::vector<std::string>;
using TokenPrompts = std::vector<std::vector<int64_t>>;
using Prompts = std::variant<TextPrompts, TokenPrompts>;

struct CompletionRequest : GenerationRequest {
  Prompts prompt;
  std::vector<std::string> prompt_embeds;  // files of torch.save in base64; prompts before those
  std::optional<int64_t> logprobs;
  std::optional<std::string> suffix;
  // Of /inference/v1/generate: without max_tokens the room that is left is used, not OpenAI's 16.
  bool fills_room = false;
  // Of the same: whether structured outputs hold from the first token on, and the variables that
  // the prompt was rendered with.
  std::optional<bool> reasoning_ended;
  bool constraint_has_calls = false;  // with it: a call's mark ends the reasoning, too
  JsonDocument template_kwargs;
};

Status ParsePrompt(Json& value, CompletionRequest* out);
Status ParsePromptEmbeds(Json& value, CompletionRequest* out);

// Refuses fields that contradict each other.
Status CheckCompletionRequest(const CompletionRequest& request);

inline constexpr ApiField<CompletionRequest> kCompletionFields[] = {
    {"prompt",
     &ParsePrompt,
     {},
     "A text, a list of texts, token ids, or a list of such lists.",
     field_schema::kPrompt},
    {"logprobs",
     &CompletionRequest::logprobs,
     {-1, kMaxTokenId},
     "Logprobs of the sampled token and of the n most likely ones; -1: the whole vocabulary."},
    {"prompt_embeds",
     &ParsePromptEmbeds,
     {},
     "Embeddings [tokens, hidden size] in place of a prompt, or a list of such: torch.save in "
     "base64.",
     field_schema::kTextOrTexts},
    {"suffix",
     &CompletionRequest::suffix,
     {},
     "Text after the completion, for models with tokens for it."},
};

StatusOr<CompletionRequest> ParseCompletionRequest(Json body);

}  // namespace tandem
