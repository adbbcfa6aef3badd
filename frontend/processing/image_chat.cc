// Prompts of chats with images among their parts.

#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/openai/refuse.h"
#include "frontend/processing/image_prompt.h"
#include "frontend/processing/input_processor.h"

namespace tandem {
namespace {

Status CheckFields(const ChatRequest& request) {
  const char* field = request.truncate_prompt_tokens ? "truncate_prompt_tokens"
                      : request.return_token_offsets ? "return_token_offsets"
                      : request.use_beam_search      ? "use_beam_search"
                                                     : nullptr;
  if (field == nullptr) return OkStatus();
  return Refuse(field, std::string(field) + " is not available with images");
}

}  // namespace

Status InputProcessor::CheckImages(const ChatRequest& request) const {
  const bool has_kwargs =
      !request.mm_processor_kwargs.is_null() && !request.mm_processor_kwargs->empty();
  if (request.images.empty() && !has_kwargs) return OkStatus();
  if (!config_.images) {
    return Refuse(request.images.empty() ? "mm_processor_kwargs" : "messages",
                  config_.model + " is not a multimodal model");
  }
  const int64_t max_images = config_.images->max_images;
  if (static_cast<int64_t>(request.images.size()) > max_images) {
    return Refuse("image", "At most " + std::to_string(max_images) +
                               " image(s) may be provided in one prompt. Set "
                               "`--limit-mm-per-prompt` to increase this limit.");
  }
  if (has_kwargs && !config_.images->trusts_kwargs) {
    return Refuse(
        "mm_processor_kwargs",
        "mm_processor_kwargs is passed with request, but --trust-request-mm-kwargs is not "
        "set. Refused request with untrusted mm_processor_kwargs.");
  }
  return CheckFields(request);
}

StatusOr<ImageSpec> InputProcessor::ImageSpecOf(const ChatRequest& request) const {
  if (request.mm_processor_kwargs.is_null()) return config_.images->spec;
  auto spec = ApplyKwargs(config_.images->spec, nlohmann::json(*request.mm_processor_kwargs));
  if (spec.ok()) return spec;
  return Status(spec.status()).WithParam("mm_processor_kwargs");
}

StatusOr<InputProcessor::Prompt> InputProcessor::ImageChatPrompt(
    const ChatRequest& request, const std::vector<ChatImage>& images, const std::string& rendered,
    int64_t max_model_len) const {
  const ImageTokens& tokens = config_.images->tokens;
  ASSIGN_OR_RETURN(const std::string text, EncodedText(rendered, images.size(), tokens));
  Prompt prompt;
  ASSIGN_OR_RETURN(
      prompt.token_ids,
      Tokenize(request, text, request.add_special_tokens.value_or(false), max_model_len));
  ASSIGN_OR_RETURN(prompt.images, PlaceImages(images, tokens, &prompt.token_ids));
  return prompt;
}

StatusOr<std::vector<TokenId>> InputProcessor::ChatTokens(ChatRequest& request) const {
  const std::vector<ChatImage> images = std::move(request.images);
  ASSIGN_OR_RETURN(std::string text, RenderChat(request));
  const bool add_special_tokens = request.add_special_tokens.value_or(false);
  if (images.empty()) return tokenizer_->Encode(text, add_special_tokens);
  const ImageTokens& tokens = config_.images->tokens;
  ASSIGN_OR_RETURN(text, EncodedText(text, images.size(), tokens));
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer_->Encode(text, add_special_tokens));
  RETURN_IF_ERROR(PlaceImages(images, tokens, &ids).status());
  return ids;
}

Status InputProcessor::CheckImageBytes(const std::vector<PlacedImage>& images, int64_t num_copies,
                                       int64_t* num_bytes) const {
  for (const PlacedImage& image : images) {
    *num_bytes += num_copies * static_cast<int64_t>(image.prepared->pixels.size());
  }
  if (images.empty() || *num_bytes <= config_.images->max_bytes) return OkStatus();
  return Refuse("messages", "the images would take " + std::to_string(*num_bytes) +
                                " bytes in the engine requests of all choices, at most " +
                                std::to_string(config_.images->max_bytes) +
                                " are allowed (--max-image-input-bytes); send fewer or smaller "
                                "images, or request fewer choices");
}

}  // namespace tandem
