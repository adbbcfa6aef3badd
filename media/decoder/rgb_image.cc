#include "media/decoder/rgb_image.h"

#include <cstring>
#include <utility>

namespace tandem {
namespace {

constexpr uint32_t kWhite = 255;

// value * alpha + 255 * (255 - alpha), divided by 255 and rounded.
uint8_t Blend(uint32_t value, uint32_t alpha) {
  const uint32_t sum = value * alpha + kWhite * (255 - alpha) + 128;
  return static_cast<uint8_t>((sum + (sum >> 8)) >> 8);
}

// Where the shown image's first pixel lies in the file's, and the steps to the next one in its row
// and in its column; in pixels.
struct Walk {
  int64_t first = 0, right = 0, down = 0;
};

Walk WalkOf(int orientation, int64_t height, int64_t width) {
  const int64_t last_column = width - 1, last_row = (height - 1) * width;
  switch (orientation) {
    case 2:
      return {last_column, -1, width};
    case 3:
      return {last_row + last_column, -1, -width};
    case 4:
      return {last_row, 1, -width};
    case 5:
      return {0, width, 1};
    case 6:
      return {last_row, -width, 1};
    case 7:
      return {last_row + last_column, -width, -1};
    case 8:
      return {last_column, width, -1};
    default:
      return {0, 1, width};
  }
}

}  // namespace

RgbImage OverWhite(ImageSize size, const uint8_t* rgba) {
  RgbImage image{.size = size, .rgb = {}};
  image.rgb.resize(static_cast<size_t>(size.num_pixels()) * 3);
  const uint8_t* from = rgba;
  for (size_t i = 0; i < image.rgb.size(); i += 3, from += 4) {
    for (size_t channel = 0; channel < 3; ++channel) {
      image.rgb[i + channel] = Blend(from[channel], from[3]);
    }
  }
  return image;
}

RgbImage Turned(RgbImage image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const Walk walk = WalkOf(orientation, image.size.height, image.size.width);
  RgbImage turned{.size = image.size, .rgb = {}};
  if (orientation >= 5) std::swap(turned.size.height, turned.size.width);
  turned.rgb.resize(image.rgb.size());
  uint8_t* to = turned.rgb.data();
  for (int64_t y = 0; y < turned.size.height; ++y) {
    for (int64_t x = 0; x < turned.size.width; ++x, to += 3) {
      std::memcpy(to, image.rgb.data() + (walk.first + y * walk.down + x * walk.right) * 3, 3);
    }
  }
  return turned;
}

}  // namespace tandem
