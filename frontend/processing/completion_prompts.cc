// The prompts of /v1/completions: texts, token ids, embeddings, and texts around a gap.

#include <utility>

#include "frontend/openai/refuse.h"
#include "frontend/processing/input_processor.h"
#include "frontend/text/base64.h"

namespace tandem {
namespace {

// An empty one is none, as for clients that always send the field.
bool FillsMiddle(const CompletionRequest& request) {
  return request.suffix && !request.suffix->empty();
}

}  // namespace

StatusOr<ProcessedRequest> InputProcessor::Process(CompletionRequest request,
                                                   const RequestContext& context) const {
  ASSIGN_OR_RETURN(std::vector<Prompt> prompts, CompletionPrompts(request, context.max_model_len));
  // They name the KV of one prompt, and nothing says of which.
  const bool is_ambiguous = prompts.size() > 1 && !request.kv_transfer_params.is_null();
  if (is_ambiguous) request.kv_transfer_params = {};
  if (FillsMiddle(request) && fill_in_middle_->stop && !request.use_beam_search) {
    request.stop_token_ids.push_back(*fill_in_middle_->stop);
  }
  MaxTokens max_tokens{request.max_tokens, "max_tokens", std::nullopt, request.echo};
  constexpr int64_t kCompletionMaxTokens = 16;  // OpenAI's
  if (request.fills_room) {
    max_tokens.fallback = config_.defaults.sampling.max_tokens;
  } else if (!request.max_tokens) {
    max_tokens.requested = kCompletionMaxTokens;
  }
  ChatFacts facts;
  facts.template_kwargs = &request.template_kwargs;
  if (request.reasoning_ended) {
    // An end that the engine could overlook must not keep the constraint away for ever.
    facts.constraint.reasoning_ended = *request.reasoning_ended || !reasoning_.ends_with_one_token;
    facts.constraint.has_calls = request.constraint_has_calls;
  }
  auto result = Finish(request, std::move(prompts), max_tokens, request.logprobs,
                       !request.fills_room, facts, context);
  if (is_ambiguous && result.ok()) {
    result->warning = "kv_transfer_params have no effect on a request with several prompts";
  }
  return result;
}

StatusOr<std::vector<InputProcessor::Prompt>> InputProcessor::CompletionPrompts(
    const CompletionRequest& request, int64_t max_model_len) const {
  std::vector<Prompt> prompts;
  const size_t num_prompts =
      request.prompt_embeds.size() +
      std::visit([](const auto& list) { return list.size(); }, request.prompt);
  if (num_prompts == 0) return Refuse("prompt", "prompt is required and must not be empty");
  if (static_cast<int64_t>(num_prompts) > config_.max_completion_prompts) {
    return Refuse("prompt", "prompt has " + std::to_string(num_prompts) + " entries, at most " +
                                std::to_string(config_.max_completion_prompts) + " are allowed");
  }
  prompts.reserve(num_prompts);
  for (const std::string& base64 : request.prompt_embeds) {
    ASSIGN_OR_RETURN(Prompt prompt, ReadEmbeddings(base64));
    prompts.push_back(std::move(prompt));
  }
  if (const auto* texts = std::get_if<TextPrompts>(&request.prompt)) {
    for (const std::string& text : *texts) {
      if (FillsMiddle(request)) {
        ASSIGN_OR_RETURN(auto ids, TokenizeAround(request, text, max_model_len));
        prompts.push_back({std::move(ids), {}});
        continue;
      }
      ASSIGN_OR_RETURN(auto ids, Tokenize(request, text, request.add_special_tokens.value_or(true),
                                          max_model_len));
      // A truncated prompt is echoed as truncated.
      std::string shown = request.truncate_prompt_tokens ? tokenizer_->Decode(ids, true) : text;
      const bool shows_text = request.echo || request.return_token_offsets;
      prompts.push_back({std::move(ids), shows_text ? std::move(shown) : std::string()});
    }
  } else {
    for (const auto& tokens : std::get<TokenPrompts>(request.prompt)) {
      ASSIGN_OR_RETURN(auto ids, CheckTokens(request, tokens, max_model_len));
      std::string text = request.echo ? tokenizer_->Decode(ids, true) : std::string();
      prompts.push_back({std::move(ids), std::move(text)});
    }
  }
  return prompts;
}

StatusOr<InputProcessor::Prompt> InputProcessor::ReadEmbeddings(std::string_view base64) const {
  if (!config_.enable_prompt_embeds) {
    return Refuse("prompt_embeds", "prompt_embeds need --enable-prompt-embeds");
  }
  const std::optional<std::string> file = Base64Decode(base64);
  if (!file) return Refuse("prompt_embeds", "prompt_embeds are not base64");
  auto tensor = ReadTorchTensor(*file);
  if (!tensor.ok()) return Refuse("prompt_embeds", "prompt_embeds: " + tensor.status().message());
  Prompt prompt;
  prompt.token_ids.resize(static_cast<size_t>(tensor->num_rows), 0);
  prompt.embeddings = std::move(*tensor);
  return prompt;
}

StatusOr<std::vector<TokenId>> InputProcessor::TokenizeAround(const CompletionRequest& request,
                                                              const std::string& before,
                                                              int64_t max_model_len) const {
  if (!fill_in_middle_) {
    return Refuse("suffix",
                  "suffix needs a model whose tokenizer has special tokens for a text in the "
                  "middle of two others, as code models have; this one's has none");
  }
  RETURN_IF_ERROR(CheckTextBytes(before.size() + request.suffix->size(), max_model_len));
  ASSIGN_OR_RETURN(const auto before_ids, tokenizer_->Encode(before, false));
  ASSIGN_OR_RETURN(const auto after_ids, EncodeContinuation(*tokenizer_, *request.suffix));
  auto ids = FillInMiddlePrompt(*fill_in_middle_, *tokenizer_, before_ids, after_ids,
                                request.add_special_tokens.value_or(true));
  for (const TokenId id : ids) RETURN_IF_ERROR(sampling_.CheckId("prompt", id));
  return ids;
}

}  // namespace tandem
