#pragma once

// A decoded image, and what is done to whole images before they are resized. Pure; any thread.

#include <cstdint>
#include <vector>

#include "media/image_size.h"

namespace tandem {

struct RgbImage {
  ImageSize size;
  std::vector<uint8_t> rgb;  // [height, width, 3], as they lie in the file's colours
};

// Over white. rgba: [height, width, 4], the alpha not multiplied in.
RgbImage OverWhite(ImageSize size, const uint8_t* rgba);

// As it is to be shown. orientation: EXIF's, 1…8; anything else leaves the image as it is.
RgbImage Turned(RgbImage image, int orientation);

}  // namespace tandem
