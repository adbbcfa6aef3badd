#include "media/image_size.h"

#include <cstdint>
#include <string>

#include "common/random.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

ImageSpec Qwen(int32_t patch_size, int64_t min_pixels, int64_t max_pixels) {
  ImageSpec spec;
  spec.patch_size = patch_size;
  spec.merge_size = 2;
  spec.temporal_patch_size = 2;
  spec.min_pixels = min_pixels;
  spec.max_pixels = max_pixels;
  return spec;
}

TEST_CASE("images are resized to whole tokens") {
  const ImageSpec spec = Qwen(14, 56 * 56, 28 * 28 * 1280);
  const auto resized = [&](int32_t width, int32_t height) {
    return ResizedSize(spec, {.height = height, .width = width}).value();
  };
  CHECK(resized(150, 90) == ImageSize{.height = 84, .width = 140});
  // 2.5 and 3.5 tokens: halves go to the even number.
  CHECK(resized(98, 70) == ImageSize{.height = 56, .width = 112});
  // Below min_pixels and above max_pixels.
  CHECK(resized(20, 26) == ImageSize{.height = 84, .width = 56});
  CHECK(resized(4000, 3000) == ImageSize{.height = 840, .width = 1148});
  // A side that would shrink to nothing keeps one token.
  const ImageSpec small = Qwen(14, 56 * 56, 20'000);
  CHECK(ResizedSize(small, {.height = 20, .width = 4000}).value() ==
        ImageSize{.height = 28, .width = 1988});
}

TEST_CASE("an image that cannot be resized is refused with its size") {
  const ImageSpec spec = Qwen(14, 56 * 56, int64_t{1} << 40);
  const auto error = [&](int32_t width, int32_t height) {
    const auto resized = ResizedSize(spec, {.height = height, .width = width});
    REQUIRE_FALSE(resized.ok());
    CHECK(resized.status().code() == StatusCode::kInvalidArgument);
    return resized.status().message();
  };
  CHECK(error(0, 7) == "the image has no pixels");
  CHECK(error(2010, 10) ==
        "the image is 2010 x 10 pixels; the longer side may be at most 200 times the shorter");
  CHECK(ResizedSize(spec, {.height = 10, .width = 2000}).ok());
  CHECK(error(10'000, 10'000).find("would be resized to more than 33554432") != std::string::npos);
}

TEST_CASE("resized sizes keep the spec's limits") {
  constexpr uint64_t kSeed = 51;
  CAPTURE(kSeed);
  auto roll = [next = uint64_t{0}](int32_t low, int32_t high) mutable {
    return low + static_cast<int32_t>(UniformAt(kSeed, next++, 7) * (high - low + 1));
  };
  for (int i = 0; i < 20'000; ++i) {
    const int64_t min_pixels = roll(1, 1 << 16);
    const ImageSpec spec = Qwen(roll(1, 20), min_pixels, min_pixels + roll(0, 1 << 20));
    const ImageSize size = {.height = roll(1, 3000), .width = roll(1, 3000)};
    CAPTURE(spec.patch_size, spec.min_pixels, spec.max_pixels, size.height, size.width);
    const StatusOr<ImageSize> resized = ResizedSize(spec, size);
    if (!resized.ok()) continue;  // too long
    const int32_t side = spec.patch_size * spec.merge_size;
    REQUIRE(resized->height >= side);
    REQUIRE(resized->width >= side);
    REQUIRE(resized->height % side == 0);
    REQUIRE(resized->width % side == 0);
    // Only sides of one token may be above the upper limit; growing may pass it by what is rounded.
    const bool is_narrow = resized->height == side || resized->width == side;
    const bool grew = size.num_pixels() < spec.min_pixels + int64_t{side} * 6000;
    REQUIRE((is_narrow || grew || resized->num_pixels() <= spec.max_pixels));
    const PreparedImage image = DescribeImage(spec, *resized);
    REQUIRE(int64_t{image.num_tokens} * side * side == resized->num_pixels());
    REQUIRE(image.shape[0] == int64_t{image.num_tokens} * 4);
    REQUIRE(image.shape[1] == int64_t{6} * spec.patch_size * spec.patch_size);
  }
}

}  // namespace
}  // namespace tandem
