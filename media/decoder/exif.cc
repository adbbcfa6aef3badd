#include "media/decoder/exif.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tandem {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShort = 3;
constexpr size_t kEntryBytes = 12;
constexpr int kAsItIs = 1;

class TiffReader {
 public:
  TiffReader(std::string_view bytes, bool is_big_endian)
      : bytes_(bytes), is_big_endian_(is_big_endian) {}

  // nullopt: beyond the end.
  std::optional<uint32_t> Number(size_t offset, size_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      const size_t place = is_big_endian_ ? offset + i : offset + size - 1 - i;
      value = value << 8 | static_cast<uint8_t>(bytes_[place]);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool is_big_endian_;
};

}  // namespace

int ExifOrientation(std::string_view tiff) {
  const bool is_big_endian = tiff.starts_with("MM");
  if (!is_big_endian && !tiff.starts_with("II")) return kAsItIs;
  const TiffReader reader(tiff, is_big_endian);
  const std::optional<uint32_t> directory = reader.Number(4, 4);
  if (reader.Number(2, 2) != 42U || !directory) return kAsItIs;
  const uint32_t num_entries = reader.Number(*directory, 2).value_or(0);
  for (uint32_t i = 0; i < num_entries; ++i) {
    const size_t entry = size_t{*directory} + 2 + i * kEntryBytes;
    const std::optional<uint32_t> tag = reader.Number(entry, 2);
    if (!tag) return kAsItIs;
    if (*tag != kOrientationTag) continue;
    const uint32_t value = reader.Number(entry + 8, 2).value_or(0);
    const bool is_known = reader.Number(entry + 2, 2) == kShort && value >= 1 && value <= 8;
    return is_known ? static_cast<int>(value) : kAsItIs;
  }
  return kAsItIs;
}

}  // namespace tandem
