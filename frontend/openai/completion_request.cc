#include "frontend/openai/completion_request.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/openai/parse_fields.h"

namespace tandem {
namespace {

// Some clients know no integers, and write 5.0.
bool ReadTokenIds(Json& value, std::vector<int64_t>* ids) {
  ids->reserve(value.size());
  for (Json& item : value) {
    if (item.is_number_float()) {
      int64_t id = 0;
      if (!ReadValue(item, &id).empty() || id < 0) return false;
      ids->push_back(id);
      continue;
    }
    if (!item.is_number_unsigned()) return false;
    const uint64_t id = item.get<uint64_t>();
    // An id above the largest int64 is out of every vocabulary; the input processor refuses it.
    ids->push_back(static_cast<int64_t>(std::min<uint64_t>(id, INT64_MAX)));
  }
  return true;
}

Status CheckPromptEmbeds(const CompletionRequest& request) {
  if (request.prompt_embeds.empty()) return OkStatus();
  const auto refuse = [](const char* message) {
    return InvalidArgumentError(message).WithParam("prompt_embeds");
  };
  if (request.echo) return refuse("echo is not available with prompt_embeds");
  if (request.prompt_logprobs) {
    return refuse("prompt_logprobs is not available with prompt_embeds");
  }
  if (request.truncate_prompt_tokens) {
    return refuse("truncate_prompt_tokens is not available with prompt_embeds");
  }
  return OkStatus();
}

// What is between the texts has no place in them.
Status CheckSuffix(const CompletionRequest& request) {
  if (!request.suffix || request.suffix->empty()) return OkStatus();
  const char* other = !request.prompt_embeds.empty()   ? "prompt_embeds"
                      : request.echo                   ? "echo"
                      : request.return_token_offsets   ? "return_token_offsets"
                      : request.truncate_prompt_tokens ? "truncate_prompt_tokens"
                      : std::holds_alternative<TokenPrompts>(request.prompt)
                          ? "a prompt of token ids"
                          : nullptr;
  if (other == nullptr) return OkStatus();
  return InvalidArgumentError("suffix is not available with " + std::string(other))
      .WithParam("suffix");
}

}  // namespace

Status ParsePrompt(Json& value, CompletionRequest* out) {
  Status wrong = InvalidArgumentError(
      "must be a string, a list of strings, a list of token ids or a list of such lists");
  if (value.is_string()) {
    out->prompt = TextPrompts{std::move(value.get_ref<std::string&>())};
    return OkStatus();
  }
  if (!value.is_array()) return wrong;
  if (value.empty()) return OkStatus();
  if (value[0].is_string()) {
    TextPrompts prompts;
    for (Json& item : value) {
      if (!item.is_string()) return wrong;
      prompts.push_back(std::move(item.get_ref<std::string&>()));
    }
    out->prompt = std::move(prompts);
    return OkStatus();
  }
  TokenPrompts prompts;
  if (value[0].is_number()) {
    if (!ReadTokenIds(value, &prompts.emplace_back())) return wrong;
  } else {
    for (Json& item : value) {
      if (!item.is_array() || !ReadTokenIds(item, &prompts.emplace_back())) return wrong;
    }
  }
  out->prompt = std::move(prompts);
  return OkStatus();
}

Status ParsePromptEmbeds(Json& value, CompletionRequest* out) {
  if (value.is_string()) {
    out->prompt_embeds = {std::move(value.get_ref<std::string&>())};
    return OkStatus();
  }
  Status wrong = InvalidArgumentError("must be a base64 string or a list of such strings");
  if (!value.is_array()) return wrong;
  for (Json& item : value) {
    if (!item.is_string()) return wrong;
    out->prompt_embeds.push_back(std::move(item.get_ref<std::string&>()));
  }
  return OkStatus();
}

Status CheckCompletionRequest(const CompletionRequest& request) {
  if (request.use_beam_search && !request.prompt_embeds.empty()) {
    return InvalidArgumentError("prompt_embeds is not available with use_beam_search")
        .WithParam("prompt_embeds");
  }
  RETURN_IF_ERROR(CheckPromptEmbeds(request));
  RETURN_IF_ERROR(CheckSuffix(request));
  if (request.logprob_token_ids.empty()) return OkStatus();
  if (!request.logprobs) {
    return InvalidArgumentError("logprob_token_ids needs logprobs").WithParam("logprob_token_ids");
  }
  if (request.echo && request.max_tokens == 0) {
    return InvalidArgumentError(
               "logprob_token_ids is not available with echo and max_tokens 0: nothing is drawn")
        .WithParam("logprob_token_ids");
  }
  return OkStatus();
}

}  // namespace tandem
