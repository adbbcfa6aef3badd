#pragma once

// Images in a prompt: a chat template shows each as a mark, which becomes as many tokens as the
// image has rows of embeddings. As the processors of transformers do it, by family.
// Thread: values and pure functions, but for the file that Read reads.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/openai/chat_image.h"
#include "frontend/text/tokenizer.h"
#include "media/image_spec.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// How a model's prompts show images.
struct ImageTokens {
  ImageFamily family = ImageFamily::kQwenVl;
  TokenId token = 0;        // stands for each of an image's rows
  std::string mark;         // in what a chat template renders
  std::string placeholder;  // before the content, for templates that take texts
  std::string encoded_as;   // the mark's text when the prompt is encoded, with one `token`

  // From the ids in a model's config.json. INVALID_ARGUMENT: one is absent, or is no token.
  static StatusOr<ImageTokens> Read(const std::string& model_dir, ImageFamily family,
                                    const Tokenizer& tokenizer);
};

// What --limit-mm-per-prompt and its relatives say.
struct ImageInputs {
  ImageSpec spec;  // with --mm-processor-kwargs
  ImageTokens tokens;
  int64_t max_images = 999;         // of one prompt; 0: the model runs as one of texts
  bool trusts_kwargs = false;       // requests may have mm_processor_kwargs
  int64_t max_bytes = 512ll << 20;  // of what the model takes of the images, of all engine requests
};

// An image in its place.
struct PlacedImage {
  std::string hash;
  std::shared_ptr<const PreparedImage> prepared;
  int32_t offset = 0;  // of its first token; it has prepared->num_tokens
};

// The rendered text, ready to be encoded. INVALID_ARGUMENT: it does not show each image once.
StatusOr<std::string> EncodedText(const std::string& rendered, size_t num_images,
                                  const ImageTokens& tokens);
// Repeats each image's token as often as the image has rows. INVALID_ARGUMENT as before.
StatusOr<std::vector<PlacedImage>> PlaceImages(const std::vector<ChatImage>& images,
                                               const ImageTokens& tokens,
                                               std::vector<TokenId>* ids);

// Puts the images on the wire, as vLLM names what its models take.
void SetImages(const std::vector<PlacedImage>& images, ImageFamily family,
               wire::EngineCoreRequest* request);

}  // namespace tandem
