#include "media/decoder/tower_pixels.h"

#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Red, green and blue of a pixel are different functions of its place.
RgbImage Numbered(int32_t height, int32_t width) {
  RgbImage image{.size = {.height = height, .width = width}, .rgb = {}};
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      for (int32_t channel = 0; channel < 3; ++channel) {
        image.rgb.push_back(static_cast<uint8_t>(y * 17 + x * 3 + channel * 80));
      }
    }
  }
  return image;
}

ImageSpec Spec(ImageFamily family) {
  ImageSpec spec;
  spec.family = family;
  spec.patch_size = 2;
  spec.merge_size = 3;
  spec.temporal_patch_size = 2;
  spec.height = 6;
  spec.width = 12;
  spec.mean = {0, 0.5F, 0.25F};
  spec.std = {1, 0.5F, 0.25F};
  return spec;
}

float Expected(const ImageSpec& spec, const RgbImage& image, int64_t y, int64_t x, size_t channel) {
  const size_t at = static_cast<size_t>(y * image.size.width + x) * 3 + channel;
  return (static_cast<float>(image.rgb[at]) - 255 * spec.mean[channel]) / (255 * spec.std[channel]);
}

TEST_CASE("patches follow one another by merged block") {
  const ImageSpec spec = Spec(ImageFamily::kQwenVl);
  const RgbImage image = Numbered(6, 12);  // 1 x 2 blocks of 3 x 3 patches
  std::vector<float> pixels(18 * 3 * 2 * 2 * 2);
  WriteTowerPixels(spec, image, pixels);
  size_t at = 0;
  for (int64_t block = 0; block < 2; ++block) {
    for (int64_t patch = 0; patch < 9; ++patch) {
      for (size_t channel = 0; channel < 3; ++channel) {
        for (int frame = 0; frame < 2; ++frame) {
          for (int64_t pixel = 0; pixel < 4; ++pixel) {
            const int64_t y = patch / 3 * 2 + pixel / 2;
            const int64_t x = block * 6 + patch % 3 * 2 + pixel % 2;
            REQUIRE(pixels[at++] == Expected(spec, image, y, x, channel));
          }
        }
      }
    }
  }
  CHECK(at == pixels.size());
}

TEST_CASE("an image of fixed size is three planes") {
  const ImageSpec spec = Spec(ImageFamily::kGemma3);
  const RgbImage image = Numbered(6, 12);
  std::vector<float> pixels(3 * 6 * 12);
  WriteTowerPixels(spec, image, pixels);
  for (size_t channel = 0; channel < 3; ++channel) {
    for (int64_t i = 0; i < 72; ++i) {
      REQUIRE(pixels[channel * 72 + static_cast<size_t>(i)] ==
              Expected(spec, image, i / 12, i % 12, channel));
    }
  }
}

}  // namespace
}  // namespace tandem
