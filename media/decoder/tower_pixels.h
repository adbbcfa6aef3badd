#pragma once

// The numbers that a model's tower takes, from an image of the size that it wants. Pure; any
// thread.

#include <span>

#include "media/decoder/rgb_image.h"
#include "media/image_spec.h"

namespace tandem {

// Fills pixels, in the order and shape of PreparedImage. REQUIRES: an image of a size from
// ResizedSize, and as many numbers as DescribeImage's shape has.
void WriteTowerPixels(const ImageSpec& spec, const RgbImage& image, std::span<float> pixels);

}  // namespace tandem
