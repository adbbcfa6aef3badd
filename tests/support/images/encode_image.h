#pragma once

// Image files for tests, made by the libraries that decode them. Thread: any. Failure: the test
// program ends.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct PngForm {
  int color_type = 2;  // libpng's: 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA
  int bit_depth = 8;
  bool is_interlaced = false;
  std::vector<uint8_t> palette = {};        // RGB, of color type 3
  std::vector<uint8_t> palette_alpha = {};  // of its first colours
  std::string_view exif = {};               // a TIFF structure
};

// rows: as PNG has them, big endian and packed, each from a new byte on.
std::string EncodePng(int width, int height, const PngForm& form, const std::string& rows);

// num_channels: 1 (gray), 3 (RGB) or 4 (CMYK, as Adobe's programs write it). exif: a TIFF
// structure, or none.
std::string EncodeJpeg(int width, int height, int num_channels, const std::vector<uint8_t>& pixels,
                       int quality, std::string_view exif = {});

// quality: of lossy ones; negative: lossless.
std::string EncodeWebp(int width, int height, const std::vector<uint8_t>& rgba, float quality);
// Lossless; each frame covers the canvas.
std::string EncodeWebpAnimation(int width, int height,
                                const std::vector<std::vector<uint8_t>>& frames);

// A TIFF structure with an orientation.
std::string OrientationTiff(int orientation, bool is_big_endian);

}  // namespace tandem
