#include "media/image_size.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace tandem {
namespace {

// Of the longer side to the shorter one; Qwen's processors refuse more.
constexpr double kMaxAspectRatio = 200;

std::string Text(int64_t height, int64_t width) {
  return std::to_string(width) + " x " + std::to_string(height);
}

// Both sides multiples of `side`, the area within the spec's limits if the ratio allows it, and the
// ratio as near as that allows. The order of the operations is part of the result.
StatusOr<ImageSize> QwenSize(const ImageSpec& spec, ImageSize size) {
  const double height = size.height, width = size.width;
  const double ratio = std::max(height, width) / std::min(height, width);
  if (ratio > kMaxAspectRatio) {
    return InvalidArgumentError("the image is " + Text(size.height, size.width) +
                                " pixels; the longer side may be at most 200 times the shorter");
  }
  const double side = int64_t{spec.patch_size} * spec.merge_size;
  const double area = height * width;
  double new_height = std::nearbyint(height / side) * side;  // halves go to the even number
  double new_width = std::nearbyint(width / side) * side;
  if (new_height * new_width > static_cast<double>(spec.max_pixels)) {
    const double shrink = std::sqrt(area / static_cast<double>(spec.max_pixels));
    new_height = std::max(side, std::floor(height / shrink / side) * side);
    new_width = std::max(side, std::floor(width / shrink / side) * side);
  } else if (new_height * new_width < static_cast<double>(spec.min_pixels)) {
    const double grow = std::sqrt(static_cast<double>(spec.min_pixels) / area);
    new_height = std::ceil(height * grow / side) * side;
    new_width = std::ceil(width * grow / side) * side;
  }
  if (new_height * new_width > static_cast<double>(kMaxResizedPixels)) {
    return InvalidArgumentError("the image is " + Text(size.height, size.width) +
                                " pixels and would be resized to more than " +
                                std::to_string(kMaxResizedPixels) +
                                "; a smaller max_pixels or min_pixels avoids that");
  }
  return ImageSize{static_cast<int32_t>(new_height), static_cast<int32_t>(new_width)};
}

}  // namespace

StatusOr<ImageSize> ResizedSize(const ImageSpec& spec, ImageSize size) {
  if (size.height < 1 || size.width < 1) return InvalidArgumentError("the image has no pixels");
  if (spec.family == ImageFamily::kGemma3) return ImageSize{spec.height, spec.width};
  return QwenSize(spec, size);
}

PreparedImage DescribeImage(const ImageSpec& spec, ImageSize resized) {
  PreparedImage image;
  if (spec.family == ImageFamily::kGemma3) {
    image.grid_t = image.grid_h = image.grid_w = 1;
    image.num_tokens = spec.num_tokens;
    image.shape = {1, 3, resized.height, resized.width};
    return image;
  }
  image.grid_t = 1;
  image.grid_h = resized.height / spec.patch_size;
  image.grid_w = resized.width / spec.patch_size;
  const int64_t num_patches = int64_t{image.grid_h} * image.grid_w;
  image.num_tokens = static_cast<int32_t>(num_patches / (spec.merge_size * spec.merge_size));
  image.shape = {num_patches,
                 int64_t{3} * spec.temporal_patch_size * spec.patch_size * spec.patch_size};
  return image;
}

}  // namespace tandem
