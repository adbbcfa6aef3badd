#include "engine_core/read_images.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/shape_text.h"
#include "kernels/tensor.h"
#include "proto_msgpack/multimodal.h"

namespace tandem {
namespace {

using Feature = wire::MultiModalFeature;

constexpr std::string_view kPixels = "pixel_values";
constexpr std::string_view kGrid = "image_grid_thw";
constexpr std::string_view kNumPatches = "num_patches";
constexpr std::string_view kShape = "pixel_values.shape";  // in place of the pixels; ours
constexpr int64_t kMaxGrid = 1 << 15;                      // patches, one way
constexpr size_t kMaxIdentifierBytes = 512;

std::string Text(int64_t number) { return std::to_string(number); }

std::optional<DType> TypeOf(std::string_view dtype) {
  if (dtype == "float32") return DType::kF32;
  if (dtype == "float16") return DType::kF16;
  if (dtype == "bfloat16") return DType::kBf16;
  return std::nullopt;
}

const wire::TensorView* Find(const Feature& feature, std::string_view key) {
  const auto item = std::ranges::find(*feature.data, key, &Feature::Item::key);
  return item == feature.data->end() ? nullptr : &item->tensor;
}

StatusOr<std::vector<int64_t>> Integers(const Feature& feature, std::string_view key) {
  const wire::TensorView* tensor = Find(feature, key);
  if (tensor == nullptr || tensor->dtype != "int64") {
    return InvalidArgumentError("an image has no " + std::string(key) + " of int64");
  }
  std::vector<int64_t> numbers(tensor->data.size() / sizeof(int64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), tensor->data.data(), tensor->data.size());
  return numbers;
}

Status ReadPixels(const Feature& feature, bool lack_pixels, ImageInput* image) {
  if (lack_pixels) {
    ASSIGN_OR_RETURN(image->shape, Integers(feature, kShape));
    return OkStatus();
  }
  const wire::TensorView* tensor = Find(feature, kPixels);
  if (tensor == nullptr) return InvalidArgumentError("an image has no pixel_values");
  const std::optional<DType> type = TypeOf(tensor->dtype);
  if (!type) {
    return InvalidArgumentError("pixel_values are of type " + std::string(tensor->dtype) +
                                ", must be float32, float16 or bfloat16");
  }
  image->shape = tensor->shape;
  const auto count = static_cast<int64_t>(tensor->data.size() / SizeOf(*type));
  image->pixels.resize(static_cast<size_t>(count));
  // The bytes may lie anywhere in a message.
  std::vector<char> aligned;
  const char* bytes = tensor->data.data();
  if (reinterpret_cast<uintptr_t>(bytes) % sizeof(float) != 0) {
    aligned.assign(tensor->data.begin(), tensor->data.end());
    bytes = aligned.data();
  }
  if (count == 0) return OkStatus();
  ConvertTensor(Tensor(image->pixels.data(), DType::kF32, {count}),
                Tensor(const_cast<char*>(bytes), *type, {count}));
  return OkStatus();
}

// Of patches that make a grid.
StatusOr<int64_t> ReadGrid(const Feature& feature, const ImageLimits& limits, ImageInput* image) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> grid, Integers(feature, kGrid));
  const auto is_side = [&](int64_t side) {
    return side >= 1 && side <= kMaxGrid && side % limits.merge_size == 0;
  };
  if (grid.size() != 3 || grid[0] != 1 || !is_side(grid[1]) || !is_side(grid[2])) {
    return InvalidArgumentError("image_grid_thw is " + ShapeText(grid) +
                                ", must be [1, height, width] in patches, multiples of " +
                                Text(limits.merge_size) + " up to " + Text(kMaxGrid));
  }
  const int64_t num_patches = grid[1] * grid[2];
  const std::vector<int64_t> shape = {num_patches, limits.patch_numbers};
  if (image->shape != shape) {
    return InvalidArgumentError("pixel_values have the shape " + ShapeText(image->shape) +
                                ", their grid and this model take " + ShapeText(shape));
  }
  image->grid_h = static_cast<int32_t>(grid[1]);
  image->grid_w = static_cast<int32_t>(grid[2]);
  image->num_slices = NumSlices(limits, num_patches);
  return num_patches / (int64_t{limits.merge_size} * limits.merge_size);
}

StatusOr<int64_t> ReadSquare(const Feature& feature, const ImageLimits& limits, ImageInput* image) {
  if (Find(feature, kNumPatches) != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> num_patches, Integers(feature, kNumPatches));
    if (num_patches != std::vector<int64_t>{1}) {
      return UnimplementedError("images in several crops (pan and scan) are not supported");
    }
  }
  const std::vector<int64_t> shape = {1, 3, limits.image_size, limits.image_size};
  if (image->shape != shape) {
    return InvalidArgumentError("pixel_values have the shape " + ShapeText(image->shape) +
                                ", this model takes " + ShapeText(shape));
  }
  image->num_slices = limits.slices_per_image;
  return limits.rows_per_image;
}

// The places of the rows; what they stand on are the image's tokens.
Status Place(const Feature& feature, const wire::EngineCoreRequest& request, TokenId token_id,
             ImageInput* image) {
  const int64_t num_prompt_tokens =
      static_cast<int64_t>(request.prompt_token_ids.size()) - request.own.num_prior_output_tokens;
  const int64_t end = int64_t{feature.offset} + feature.length;
  if (end > num_prompt_tokens) {
    return InvalidArgumentError("an image stands at tokens " + Text(feature.offset) + " to " +
                                Text(end - 1) + ", the prompt has " + Text(num_prompt_tokens));
  }
  image->begin = feature.offset;
  image->num_tokens = feature.length;
  for (int32_t p = image->begin; p < image->end(); ++p) {
    if (!feature.is_embed.empty() && !feature.is_embed[static_cast<size_t>(p - image->begin)]) {
      continue;
    }
    if (const TokenId id = request.prompt_token_ids[static_cast<size_t>(p)]; id != token_id) {
      return InvalidArgumentError("an image stands at token " + Text(p) + ", which is " + Text(id) +
                                  " and not the image token " + Text(token_id));
    }
    if (image->runs.empty() || image->runs.back().end() != p) image->runs.push_back({p, 0});
    ++image->runs.back().num_rows;
    ++image->num_rows;
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<const ImageInput>> ReadImage(const Feature& feature,
                                                      const ExecutorLimits& limits,
                                                      const wire::EngineCoreRequest& request) {
  const ImageLimits& wanted = *limits.images;
  if (feature.modality != "image") {
    return UnimplementedError(feature.modality + " input is not supported by this engine");
  }
  if (!feature.data) {
    return NotFoundError("an image came without its data, which this engine does not have");
  }
  if (feature.identifier.size() > kMaxIdentifierBytes) {
    return InvalidArgumentError("an image's identifier has more than " + Text(kMaxIdentifierBytes) +
                                " bytes");
  }
  auto image = std::make_shared<ImageInput>();
  RETURN_IF_ERROR(Place(feature, request, wanted.token_id, image.get()));
  RETURN_IF_ERROR(ReadPixels(feature, wanted.lack_pixels, image.get()));
  ASSIGN_OR_RETURN(const int64_t num_rows, wanted.patch_numbers > 0
                                               ? ReadGrid(feature, wanted, image.get())
                                               : ReadSquare(feature, wanted, image.get()));
  if (image->num_rows != num_rows) {
    return InvalidArgumentError("an image stands at " + Text(image->num_rows) +
                                " tokens of the prompt, but has " + Text(num_rows) + " rows");
  }
  if (wanted.have_positions && image->runs.size() != 1) {
    return InvalidArgumentError("the rows of an image must stand side by side for this model");
  }
  image->identifier = feature.identifier;
  image->key = feature.identifier + "/" + Text(num_rows);
  return std::shared_ptr<const ImageInput>(std::move(image));
}

}  // namespace

StatusOr<std::shared_ptr<const RequestImages>> ReadImages(const ExecutorLimits& limits,
                                                          wire::EngineCoreRequest* request) {
  if (request->mm_features.is_nil()) return std::shared_ptr<const RequestImages>();
  ASSIGN_OR_RETURN(const std::vector<Feature> features, wire::DecodeFeatures(*request));
  auto images = std::make_shared<RequestImages>();
  if (!features.empty() && !limits.images) {
    return UnimplementedError(
        "multimodal input is not supported by this engine: its model has no vision tower, or runs "
        "without it");
  }
  if (!features.empty() && !request->prompt_embeds.is_nil()) {
    return InvalidArgumentError("images and prompt embeddings cannot be in one prompt");
  }
  for (const Feature& feature : features) {
    ASSIGN_OR_RETURN(std::shared_ptr<const ImageInput> image, ReadImage(feature, limits, *request));
    if (!images->empty() && image->begin < images->back()->end()) {
      return InvalidArgumentError("the images are not in the order of their places, or overlap");
    }
    images->push_back(std::move(image));
  }
  request->mm_features = {};
  if (images->empty()) return std::shared_ptr<const RequestImages>();
  request->aux_frames.clear();
  return std::shared_ptr<const RequestImages>(std::move(images));
}

std::vector<std::string> LackingData(const wire::EngineCoreRequest& request) {
  std::vector<std::string> hashes;
  const StatusOr<std::vector<Feature>> features = wire::DecodeFeatures(request);
  if (!features.ok()) return hashes;
  for (const Feature& feature : *features) {
    if (!feature.data) hashes.push_back(feature.mm_hash.value_or(feature.identifier));
  }
  return hashes;
}

std::optional<RecordedImages> WithoutPixels(const wire::EngineCoreRequest& request) {
  // The frames of embeddings are numbered too; both in one request are refused.
  if (request.mm_features.is_nil() || !request.prompt_embeds.is_nil()) return std::nullopt;
  StatusOr<std::vector<Feature>> features = wire::DecodeFeatures(request);
  if (!features.ok()) return std::nullopt;
  std::vector<std::vector<int64_t>> shapes;
  shapes.reserve(features->size());
  for (Feature& feature : *features) {
    const wire::TensorView* pixels = feature.data ? Find(feature, kPixels) : nullptr;
    if (pixels == nullptr) continue;
    const std::vector<int64_t>& shape = shapes.emplace_back(pixels->shape);
    std::erase_if(*feature.data, [](const Feature::Item& item) { return item.key == kPixels; });
    const std::string_view bytes(reinterpret_cast<const char*>(shape.data()),
                                 shape.size() * sizeof(int64_t));
    feature.data->push_back({.key = std::string(kShape),
                             .tensor = {"int64", {static_cast<int64_t>(shape.size())}, bytes},
                             .factory = "batched",
                             .kwargs = wire::BatchedKwargs(true)});
  }
  wire::EngineCoreRequest recorded;
  wire::EncodeFeatures(*features, &recorded);
  return RecordedImages{std::move(recorded.mm_features), std::move(recorded.aux_frames)};
}

}  // namespace tandem
