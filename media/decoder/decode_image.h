#pragma once

// An image file to pixels: PNG, JPEG or WebP, told apart by content; EXIF's orientation is applied,
// transparency lies over white, and of an animation the first frame counts.
// Thread: any; several at once. Works on a stranger's bytes: called in a process of its own.
// Failure: INVALID_ARGUMENT, with what is wrong with the image.

#include <cstdint>
#include <string_view>

#include "common/status.h"
#include "media/decoder/rgb_image.h"

namespace tandem {

// Looked at before anything is allocated for the pixels.
struct DecodeLimits {
  int64_t max_pixels = int64_t{96} << 20;  // three bytes each, and up to four more meanwhile
  int32_t max_side = 65'535;               // in pixels
};

StatusOr<RgbImage> DecodeImage(std::string_view bytes, const DecodeLimits& limits);

// ---- of one kind each, as the file has it: not turned; *orientation is EXIF's ----

StatusOr<RgbImage> DecodePng(std::string_view bytes, const DecodeLimits& limits, int* orientation);
StatusOr<RgbImage> DecodeJpeg(std::string_view bytes, const DecodeLimits& limits, int* orientation);
StatusOr<RgbImage> DecodeWebp(std::string_view bytes, const DecodeLimits& limits, int* orientation);

// INVALID_ARGUMENT: the sides are none, or beyond the limits.
StatusOr<ImageSize> CheckedSize(uint64_t height, uint64_t width, const DecodeLimits& limits);
// "the PNG image cannot be decoded: …".
Status CannotDecode(std::string_view kind, std::string_view reason);

}  // namespace tandem
