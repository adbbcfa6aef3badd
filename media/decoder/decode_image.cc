#include "media/decoder/decode_image.h"

#include <string>
#include <utility>

namespace tandem {
namespace {

enum class Kind { kPng, kJpeg, kWebp };

struct KindRow {
  size_t offset;
  std::string_view bytes;
  Kind kind;
};

constexpr KindRow kKinds[] = {
    {0, std::string_view("\x89PNG\r\n\x1a\n", 8), Kind::kPng},
    {0, "\xff\xd8\xff", Kind::kJpeg},
    {8, "WEBP", Kind::kWebp},  // in a RIFF container
};

// Kinds that clients send and that are not decoded.
struct OtherRow {
  size_t offset;
  std::string_view bytes;
  std::string_view name;
};

constexpr OtherRow kOthers[] = {
    {0, "GIF8", "a GIF image"},
    {0, "BM", "a BMP image"},
    {0, std::string_view("II*\0", 4), "a TIFF image"},
    {0, std::string_view("MM\0*", 4), "a TIFF image"},
    {4, "ftypavif", "an AVIF image"},
    {4, "ftyphei", "a HEIC image"},
    {4, "ftypmif1", "a HEIF image"},
    {0, "\xff\x0a", "a JPEG XL image"},
    {4, "JXL ", "a JPEG XL image"},
    {4, "jP  ", "a JPEG 2000 image"},
    {0, "<svg", "an SVG image"},
    {0, "<?xml", "XML"},
    {0, "%PDF", "a PDF document"},
    {0, "<!DOCTYPE", "an HTML page"},
    {0, "<html", "an HTML page"},
};

bool Lies(std::string_view bytes, size_t offset, std::string_view what) {
  return bytes.size() >= offset && bytes.substr(offset).starts_with(what);
}

StatusOr<Kind> KindOf(std::string_view bytes) {
  for (const KindRow& row : kKinds) {
    if (Lies(bytes, row.offset, row.bytes) && (row.offset == 0 || bytes.starts_with("RIFF"))) {
      return row.kind;
    }
  }
  std::string_view name = bytes.empty() ? "an empty file" : "of a kind that is not known";
  for (const OtherRow& row : kOthers) {
    if (Lies(bytes, row.offset, row.bytes)) name = row.name;
  }
  return InvalidArgumentError("the image is " + std::string(name) +
                              "; PNG, JPEG and WebP are supported");
}

}  // namespace

StatusOr<RgbImage> DecodeImage(std::string_view bytes, const DecodeLimits& limits) {
  ASSIGN_OR_RETURN(const Kind kind, KindOf(bytes));
  const auto decode = kind == Kind::kPng    ? DecodePng
                      : kind == Kind::kJpeg ? DecodeJpeg
                                            : DecodeWebp;
  int orientation = 1;
  ASSIGN_OR_RETURN(RgbImage image, decode(bytes, limits, &orientation));
  return Turned(std::move(image), orientation);
}

StatusOr<ImageSize> CheckedSize(uint64_t height, uint64_t width, const DecodeLimits& limits) {
  if (height == 0 || width == 0) return InvalidArgumentError("the image has no pixels");
  const auto most = static_cast<uint64_t>(limits.max_side);
  if (height > most || width > most || height * width > static_cast<uint64_t>(limits.max_pixels)) {
    return InvalidArgumentError("the image is " + std::to_string(width) + " x " +
                                std::to_string(height) + " pixels; at most " +
                                std::to_string(limits.max_pixels) + " are allowed, and " +
                                std::to_string(limits.max_side) + " on a side");
  }
  return ImageSize{static_cast<int32_t>(height), static_cast<int32_t>(width)};
}

Status CannotDecode(std::string_view kind, std::string_view reason) {
  return InvalidArgumentError("the " + std::string(kind) +
                              " image cannot be decoded: " + std::string(reason));
}

}  // namespace tandem
