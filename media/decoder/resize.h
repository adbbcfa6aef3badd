#pragma once

// Resizing as torchvision's antialiased resize of uint8 images does it on a CPU, to the bit: first
// along x, then along y; weights are integers of 16 bits, and each pass rounds to uint8.
// Pure; any thread.

#include "media/decoder/rgb_image.h"

namespace tandem {

// resample: kBilinear or kBicubic. REQUIRES: sizes of at least one pixel.
RgbImage Resize(RgbImage image, ImageSize size, int32_t resample);

}  // namespace tandem
