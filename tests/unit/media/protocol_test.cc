#include "media/protocol.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("a resized size is taken only where it is one") {
  ImageSpec qwen;
  qwen.patch_size = 14;
  qwen.merge_size = 2;
  const auto take = [](ImageSize size, const ImageSpec& spec) {
    return UnpackResizedSize(PackImageSize(size), spec);
  };
  CHECK(take({.height = 28, .width = 280}, qwen).value() == ImageSize{.height = 28, .width = 280});
  for (const ImageSize wrong : {ImageSize{0, 28}, ImageSize{28, -28}, ImageSize{28, 27},
                                ImageSize{1 << 25, 28}, ImageSize{28 << 9, 28 << 9}}) {
    CHECK_FALSE(take(wrong, qwen).ok());
  }
  ImageSpec gemma;
  gemma.family = ImageFamily::kGemma3;
  gemma.height = 64;
  gemma.width = 32;
  CHECK(take({.height = 64, .width = 32}, gemma).ok());
  CHECK_FALSE(take({.height = 32, .width = 64}, gemma).ok());
  CHECK_FALSE(UnpackResizedSize("", gemma).ok());
  CHECK_FALSE(UnpackResizedSize(PackImageSize({.height = 64, .width = 32}) + "x", gemma).ok());
}

}  // namespace
}  // namespace tandem
