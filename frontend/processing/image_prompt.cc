#include "frontend/processing/image_prompt.h"

#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/read_file.h"
#include "frontend/openai/json.h"
#include "proto_msgpack/multimodal.h"

namespace tandem {
namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;

// The text of the token whose id the config has at the key.
StatusOr<std::string> TokenText(const Json& config, const char* key, const Tokenizer& tokenizer) {
  const auto id = config.find(key);
  const bool is_id = id != config.end() && id->is_number_integer() && *id >= 0 && *id < 1 << 30;
  const auto text =
      is_id ? tokenizer.IdToToken(static_cast<TokenId>(id->get<int64_t>())) : std::nullopt;
  if (text) return std::string(*text);
  return InvalidArgumentError("config.json: " + std::string(key) +
                              " must be the id of one of the tokenizer's tokens");
}

Status WrongCount(size_t num_found, size_t num_images, const std::string& mark) {
  return InvalidArgumentError("the prompt shows " + std::to_string(num_found) +
                              " image placeholders (" + mark + ") for " +
                              std::to_string(num_images) +
                              " images: texts must not contain it, and the chat template must show "
                              "each image once")
      .WithParam("messages");
}

wire::MultiModalFeature::Item ItemOf(const char* key, std::string_view dtype,
                                     std::vector<int64_t> shape, std::string_view data,
                                     const char* factory, wire::RawValue kwargs) {
  return {key, {dtype, std::move(shape), data}, factory, std::move(kwargs)};
}

template <class Numbers>
std::string_view BytesOf(const Numbers& numbers) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(numbers.data()), sizeof numbers};
}

}  // namespace

StatusOr<ImageTokens> ImageTokens::Read(const std::string& model_dir, ImageFamily family,
                                        const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(model_dir + "/config.json", kMaxConfigBytes));
  ASSIGN_OR_RETURN(const JsonDocument config, ParseJson(text));
  ImageTokens tokens;
  tokens.family = family;
  if (family == ImageFamily::kQwenVl) {
    ASSIGN_OR_RETURN(tokens.mark, TokenText(*config, "image_token_id", tokenizer));
    ASSIGN_OR_RETURN(const std::string begin,
                     TokenText(*config, "vision_start_token_id", tokenizer));
    ASSIGN_OR_RETURN(const std::string end, TokenText(*config, "vision_end_token_id", tokenizer));
    tokens.token = config->at("image_token_id").get<TokenId>();
    tokens.placeholder = begin + tokens.mark + end;
    tokens.encoded_as = tokens.mark;
    return tokens;
  }
  ASSIGN_OR_RETURN(const std::string row, TokenText(*config, "image_token_index", tokenizer));
  ASSIGN_OR_RETURN(tokens.mark, TokenText(*config, "boi_token_index", tokenizer));
  ASSIGN_OR_RETURN(const std::string end, TokenText(*config, "eoi_token_index", tokenizer));
  tokens.token = config->at("image_token_index").get<TokenId>();
  tokens.placeholder = tokens.mark;
  tokens.encoded_as = "\n\n" + tokens.mark + row + end + "\n\n";
  return tokens;
}

StatusOr<std::string> EncodedText(const std::string& rendered, size_t num_images,
                                  const ImageTokens& tokens) {
  std::string text;
  size_t num_found = 0;
  size_t begin = 0;
  for (size_t at; (at = rendered.find(tokens.mark, begin)) != rendered.npos; ++num_found) {
    text.append(rendered, begin, at - begin).append(tokens.encoded_as);
    begin = at + tokens.mark.size();
  }
  if (num_found != num_images) return WrongCount(num_found, num_images, tokens.mark);
  return text.append(rendered, begin);
}

StatusOr<std::vector<PlacedImage>> PlaceImages(const std::vector<ChatImage>& images,
                                               const ImageTokens& tokens,
                                               std::vector<TokenId>* ids) {
  std::vector<PlacedImage> placed;
  std::vector<TokenId> all;
  size_t num_found = 0;
  for (const TokenId id : *ids) {
    if (id != tokens.token) {
      all.push_back(id);
      continue;
    }
    if (num_found++ >= images.size()) continue;
    const ChatImage& image = images[num_found - 1];
    placed.push_back({image.hash, image.prepared, static_cast<int32_t>(all.size())});
    all.insert(all.end(), static_cast<size_t>(image.prepared->num_tokens), id);
  }
  if (num_found != images.size()) return WrongCount(num_found, images.size(), tokens.mark);
  *ids = std::move(all);
  return placed;
}

void SetImages(const std::vector<PlacedImage>& images, ImageFamily family,
               wire::EngineCoreRequest* request) {
  // What the tensors of small numbers are views of.
  std::vector<std::array<int64_t, 3>> grids;
  grids.reserve(images.size());
  constexpr std::array<int64_t, 1> kOnePatch = {1};
  std::vector<wire::MultiModalFeature> features;
  for (const PlacedImage& image : images) {
    const PreparedImage& prepared = *image.prepared;
    wire::MultiModalFeature& feature = features.emplace_back();
    feature.identifier = image.hash;
    feature.mm_hash = image.hash;
    feature.offset = image.offset;
    feature.length = prepared.num_tokens;
    auto& data = feature.data.emplace();
    data.push_back(ItemOf("pixel_values", "float32", prepared.shape, prepared.pixels, "flat",
                          wire::FlatKwargs(prepared.shape.front())));
    if (family == ImageFamily::kQwenVl) {
      grids.push_back({prepared.grid_t, prepared.grid_h, prepared.grid_w});
      data.push_back(ItemOf("image_grid_thw", "int64", {3}, BytesOf(grids.back()), "batched",
                            wire::BatchedKwargs(/*keep_on_cpu=*/true)));
    } else {
      data.push_back(ItemOf("num_patches", "int64", {}, BytesOf(kOnePatch), "batched",
                            wire::BatchedKwargs(/*keep_on_cpu=*/false)));
    }
  }
  wire::EncodeFeatures(features, request);
}

}  // namespace tandem
