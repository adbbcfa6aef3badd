#pragma once

// How a model wants its images, and an image that is ready for its tower.
// Thread: values; the functions are pure but for the files that ReadImageSpec reads.
// Failure: a message that names the file or the key, and what is allowed.

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

enum class ImageFamily : uint8_t {
  kQwenVl,  // any size that patches cover: Qwen2.5-VL, Qwen3-VL, Qwen3.5
  kGemma3,  // one fixed size
};

// Filters of a resize, by Pillow's numbers.
constexpr int32_t kBilinear = 2;
constexpr int32_t kBicubic = 3;

struct ImageSpec {
  ImageFamily family = ImageFamily::kQwenVl;
  // Qwen: sides of a patch in pixels, of a token in patches; frames of a patch; and the area, in
  // pixels, that an image is resized to lie between.
  int32_t patch_size = 0, merge_size = 0, temporal_patch_size = 0;
  int64_t min_pixels = 0, max_pixels = 0;
  // Gemma 3: the size in pixels and the tokens of every image.
  int32_t height = 0, width = 0;
  int32_t num_tokens = 0;
  // Of red, green and blue in 0…1.
  std::array<float, 3> mean = {}, std = {};
  int32_t resample = kBicubic;

  friend bool operator==(const ImageSpec&, const ImageSpec&) = default;
};

struct PreparedImage {
  int32_t grid_t = 0, grid_h = 0, grid_w = 0;  // in patches; Gemma 3: 1, 1, 1
  int32_t num_tokens = 0;                      // that take the place of its placeholder
  std::vector<int64_t> shape;                  // of pixels
  // float32, little endian. Qwen: [patches, 3 * frames * side * side], patches ordered by merged
  // block; Gemma 3: [1, 3, height, width].
  std::string pixels;
};

// From config.json and preprocessor_config.json (or processor_config.json, where it holds the same)
// of a model's folder. NOT_FOUND: the model takes no images, or they are not supported; else
// INVALID_ARGUMENT: a file is wrong, or asks for what is not supported.
StatusOr<ImageSpec> ReadImageSpec(const std::string& model_dir);

// What --mm-processor-kwargs or a request's mm_processor_kwargs change. INVALID_ARGUMENT, with the
// param: an unknown key or a value that is out of range; a null is as if the key were not there.
StatusOr<ImageSpec> ApplyKwargs(const ImageSpec& spec, const nlohmann::json& mm_processor_kwargs);

// The bytes are also the spec's identity: what prepares an image alike has the same.
std::string PackImageSpec(const ImageSpec& spec);
StatusOr<ImageSpec> UnpackImageSpec(std::string_view packed);

}  // namespace tandem
