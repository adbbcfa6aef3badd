#include "media/decoder/tower_pixels.h"

#include <array>

#include "common/check.h"

namespace tandem {
namespace {

constexpr size_t kChannels = 3;

// What each byte of each channel becomes.
using Normalized = std::array<std::array<float, 256>, kChannels>;

// The mean and the deviation are scaled and not the pixel, as in the models' own processors.
Normalized MakeNormalized(const ImageSpec& spec) {
  Normalized table = {};
  for (size_t channel = 0; channel < kChannels; ++channel) {
    const float mean = spec.mean[channel] * 255.0F, deviation = spec.std[channel] * 255.0F;
    for (size_t value = 0; value < 256; ++value) {
      table[channel][value] = (static_cast<float>(value) - mean) / deviation;
    }
  }
  return table;
}

class PatchWriter {
 public:
  PatchWriter(const ImageSpec& spec, const RgbImage& image, float* to)
      : spec_(spec), image_(image), table_(MakeNormalized(spec)), to_(to) {}

  // Patches by merged block, then by row and column inside the block.
  void WriteAll() {
    const int32_t block = spec_.patch_size * spec_.merge_size;
    for (int32_t y = 0; y < image_.size.height; y += block) {
      for (int32_t x = 0; x < image_.size.width; x += block) {
        for (int32_t row = 0; row < spec_.merge_size; ++row) {
          for (int32_t column = 0; column < spec_.merge_size; ++column) {
            WritePatch(y + row * spec_.patch_size, x + column * spec_.patch_size);
          }
        }
      }
    }
  }

 private:
  // [channel, frame, y, x]; an image is every frame of a patch.
  void WritePatch(int32_t first_y, int32_t first_x) {
    for (size_t channel = 0; channel < kChannels; ++channel) {
      for (int32_t frame = 0; frame < spec_.temporal_patch_size; ++frame) {
        for (int32_t y = first_y; y < first_y + spec_.patch_size; ++y) {
          const int64_t pixel = int64_t{y} * image_.size.width + first_x;
          const uint8_t* from = image_.rgb.data() + pixel * int64_t{kChannels} + channel;
          for (int32_t x = 0; x < spec_.patch_size; ++x, from += kChannels) {
            *to_++ = table_[channel][*from];
          }
        }
      }
    }
  }

  const ImageSpec& spec_;
  const RgbImage& image_;
  const Normalized table_;
  float* to_;
};

void WritePlanes(const ImageSpec& spec, const RgbImage& image, float* to) {
  const Normalized table = MakeNormalized(spec);
  for (size_t channel = 0; channel < kChannels; ++channel) {
    for (size_t i = channel; i < image.rgb.size(); i += kChannels) {
      *to++ = table[channel][image.rgb[i]];
    }
  }
}

}  // namespace

void WriteTowerPixels(const ImageSpec& spec, const RgbImage& image, std::span<float> pixels) {
  const PreparedImage described = DescribeImage(spec, image.size);
  int64_t count = 1;
  for (const int64_t size : described.shape) count *= size;
  CHECK_EQ(static_cast<int64_t>(pixels.size()), count);
  if (spec.family == ImageFamily::kGemma3) {
    WritePlanes(spec, image, pixels.data());
  } else {
    PatchWriter(spec, image, pixels.data()).WriteAll();
  }
}

}  // namespace tandem
