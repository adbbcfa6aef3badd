// An image's file: refused with a message, or pixels for a tower. The first byte chooses the model.

#include <vector>

#include "common/check.h"
#include "media/decoder/decode_image.h"
#include "media/decoder/resize.h"
#include "media/decoder/tower_pixels.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

// Small, so that an input takes no time; the limits themselves are reached soon.
constexpr DecodeLimits kLimits = {.max_pixels = 1 << 13, .max_side = 1 << 10};

ImageSpec SmallSpec(bool is_fixed) {
  ImageSpec spec;
  spec.family = is_fixed ? ImageFamily::kGemma3 : ImageFamily::kQwenVl;
  spec.patch_size = spec.merge_size = spec.temporal_patch_size = 2;
  spec.min_pixels = 64;
  spec.max_pixels = 1024;
  spec.height = 13;
  spec.width = 29;
  spec.mean = spec.std = {0.5F, 0.5F, 0.5F};
  spec.resample = is_fixed ? kBilinear : kBicubic;
  return spec;
}

void Use(const ImageSpec& spec, const StatusOr<RgbImage>& image) {
  if (!image.ok()) {
    CHECK(image.status().code() == StatusCode::kInvalidArgument);
    CHECK(!image.status().message().empty());
    return;
  }
  CHECK_LE(image->size.num_pixels(), kLimits.max_pixels);
  CHECK_EQ(static_cast<int64_t>(image->rgb.size()), image->size.num_pixels() * 3);
  const StatusOr<ImageSize> size = ResizedSize(spec, image->size);
  if (!size.ok()) return;
  int64_t count = 1;
  for (const int64_t length : DescribeImage(spec, *size).shape) count *= length;
  std::vector<float> pixels(static_cast<size_t>(count));
  WriteTowerPixels(spec, Resize(*image, *size, spec.resample), pixels);
  for (const float pixel : pixels) CHECK(pixel >= -1 && pixel <= 1);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  FuzzInput input(data, size);
  const ImageSpec spec = SmallSpec(input.Below(2) == 1);
  Use(spec, DecodeImage(input.Rest(), kLimits));
  return 0;
}
