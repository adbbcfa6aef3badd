#pragma once

// Sizes of images before and after they are resized for a model. Pure; any thread.

#include <cstdint>

#include "common/status.h"
#include "media/image_spec.h"

namespace tandem {

// In pixels.
struct ImageSize {
  int32_t height = 0, width = 0;

  int64_t num_pixels() const { return int64_t{height} * width; }
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

// More would take 800 MB as float32 patches.
constexpr int64_t kMaxResizedPixels = int64_t{1} << 25;

// The size that an image of this size is resized to. INVALID_ARGUMENT: an image without pixels, one
// that is too long for the model, or a result of more than kMaxResizedPixels.
StatusOr<ImageSize> ResizedSize(const ImageSpec& spec, ImageSize size);

// A PreparedImage without its pixels, for an image of this resized size. REQUIRES: a size from
// ResizedSize.
PreparedImage DescribeImage(const ImageSpec& spec, ImageSize resized);

}  // namespace tandem
