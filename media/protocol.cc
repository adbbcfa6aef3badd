#include "media/protocol.h"

#include <array>

#include "common/check.h"
#include "common/packed_bytes.h"

namespace tandem {

std::string PackImageSize(ImageSize size) {
  std::array<char, 32> memory;
  ByteWriter writer(memory);
  writer.Signed(size.height);
  writer.Signed(size.width);
  CHECK(writer.fits());
  return std::string(memory.data(), writer.size());
}

StatusOr<ImageSize> UnpackResizedSize(std::string_view packed, const ImageSpec& spec) {
  ByteReader reader(packed);
  const int64_t height = reader.Signed(), width = reader.Signed();
  const auto is_side = [&](int64_t side, int64_t whole) {
    if (spec.family == ImageFamily::kGemma3) return side == whole;
    const int64_t step = int64_t{spec.patch_size} * spec.merge_size;
    return side >= step && side <= kMaxResizedPixels && side % step == 0;
  };
  if (!reader.ok() || !reader.empty() || !is_side(height, spec.height) ||
      !is_side(width, spec.width) || height * width > kMaxResizedPixels) {
    return DataLossError("a malformed size of an image");
  }
  return ImageSize{static_cast<int32_t>(height), static_cast<int32_t>(width)};
}

}  // namespace tandem
