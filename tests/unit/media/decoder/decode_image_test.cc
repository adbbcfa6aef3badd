#include "media/decoder/decode_image.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/support/images/encode_image.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int kWidth = 7, kHeight = 5;
constexpr size_t kPixels = kWidth * kHeight;

StatusOr<RgbImage> Decode(const std::string& bytes) { return DecodeImage(bytes, {}); }

std::vector<uint8_t> RandomBytes(size_t count, uint64_t seed) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<uint8_t>(UniformAt(seed, i, 3) * 256));
  }
  return bytes;
}

std::string Text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

uint8_t OnWhite(int value, int alpha) {
  return static_cast<uint8_t>(std::lround((value * alpha + 255 * (255 - alpha)) / 255.0));
}

// The image of the test's size whose colours are these, of pixel i.
void CheckColors(const StatusOr<RgbImage>& image,
                 const std::function<std::vector<int>(size_t)>& color, int tolerance = 0) {
  REQUIRE(image.ok());
  CHECK(image->size == ImageSize{.height = kHeight, .width = kWidth});
  REQUIRE(image->rgb.size() == kPixels * 3);
  for (size_t i = 0; i < kPixels; ++i) {
    for (size_t channel = 0; channel < 3; ++channel) {
      CAPTURE(i, channel);
      REQUIRE(std::abs(image->rgb[i * 3 + channel] - color(i)[channel]) <= tolerance);
    }
  }
}

TEST_CASE("PNG images of every form are red, green and blue over white") {
  const bool is_interlaced = GENERATE(false, true);
  const auto encode = [&](PngForm form, const std::vector<uint8_t>& rows) {
    form.is_interlaced = is_interlaced;
    return Decode(EncodePng(kWidth, kHeight, form, Text(rows)));
  };
  for (const int depth : {1, 2, 4, 8}) {
    CAPTURE(depth);
    const auto row_bytes = static_cast<size_t>((kWidth * depth + 7) / 8);
    const std::vector<uint8_t> gray = RandomBytes(row_bytes * kHeight, 1);
    const auto level = [&](size_t i) {
      const size_t bit = i % kWidth * static_cast<size_t>(depth);
      const uint8_t byte = gray[i / kWidth * row_bytes + bit / 8];
      return byte >> (8 - depth - static_cast<int>(bit % 8)) & ((1 << depth) - 1);
    };
    CheckColors(encode({.color_type = 0, .bit_depth = depth}, gray), [&](size_t i) {
      const int value = level(i) * 255 / ((1 << depth) - 1);
      return std::vector{value, value, value};
    });
    // Half of the colours have an alpha.
    const std::vector<uint8_t> palette = RandomBytes((size_t{3} << depth), 2);
    const std::vector<uint8_t> alpha = RandomBytes(size_t{1} << (depth - 1), 3);
    const PngForm form = {
        .color_type = 3, .bit_depth = depth, .palette = palette, .palette_alpha = alpha};
    CheckColors(encode(form, gray), [&](size_t i) {
      const auto index = static_cast<size_t>(level(i));
      const int opacity = index < alpha.size() ? alpha[index] : 255;
      return std::vector<int>{OnWhite(palette[index * 3], opacity),
                              OnWhite(palette[index * 3 + 1], opacity),
                              OnWhite(palette[index * 3 + 2], opacity)};
    });
  }
  const std::vector<uint8_t> bytes = RandomBytes(kPixels * 4 * 2, 4);
  const auto first = [&](size_t count) {
    return std::vector<uint8_t>(bytes.begin(), bytes.begin() + static_cast<int64_t>(count));
  };
  for (const int color_type : {2, 4, 6}) {
    for (const size_t size : {size_t{1}, size_t{2}}) {  // of 16 bits the upper 8 count
      CAPTURE(color_type, size);
      const size_t channels = color_type == 2 ? 3 : color_type == 4 ? 2 : 4;
      const PngForm form = {.color_type = color_type, .bit_depth = static_cast<int>(8 * size)};
      CheckColors(encode(form, first(kPixels * channels * size)), [&](size_t i) {
        const auto value = [&](size_t channel) -> int {
          return bytes[(i * channels + channel) * size];
        };
        const int alpha = channels % 2 == 0 ? value(channels - 1) : 255;
        std::vector<int> color;
        for (size_t c = 0; c < 3; ++c) {
          color.push_back(OnWhite(value(channels < 3 ? 0 : c), alpha));
        }
        return color;
      });
    }
  }
}

// Smooth, so that JPEG and lossy WebP keep it nearly.
std::vector<uint8_t> Smooth(size_t num_channels) {
  std::vector<uint8_t> pixels;
  for (size_t i = 0; i < kPixels; ++i) {
    for (size_t channel = 0; channel < num_channels; ++channel) {
      pixels.push_back(static_cast<uint8_t>(30 + i % kWidth * 20 + i / kWidth * 15 + channel));
    }
  }
  return pixels;
}

TEST_CASE("JPEG images of one, three and four channels are decoded") {
  const std::vector<uint8_t> gray = Smooth(1), rgb = Smooth(3), cmyk = Smooth(4);
  CheckColors(
      Decode(EncodeJpeg(kWidth, kHeight, 1, gray, 100)),
      [&](size_t i) {
        return std::vector<int>{gray[i], gray[i], gray[i]};
      },
      2);
  CheckColors(
      Decode(EncodeJpeg(kWidth, kHeight, 3, rgb, 100)),
      [&](size_t i) {
        return std::vector<int>{rgb[i * 3], rgb[i * 3 + 1], rgb[i * 3 + 2]};
      },
      4);
  // The values are 255 minus ink.
  CheckColors(
      Decode(EncodeJpeg(kWidth, kHeight, 4, cmyk, 100)),
      [&](size_t i) {
        std::vector<int> color;
        for (size_t c = 0; c < 3; ++c) {
          color.push_back(cmyk[i * 4 + c] * cmyk[i * 4 + 3] / 255);
        }
        return color;
      },
      3);
}

TEST_CASE("WebP images are decoded, of an animation the first frame") {
  const std::vector<uint8_t> rgba = RandomBytes(kPixels * 4, 5),
                             other = RandomBytes(kPixels * 4, 6);
  const auto color = [](const std::vector<uint8_t>& from) {
    return [&from](size_t i) {
      const uint8_t* pixel = &from[i * 4];
      return std::vector<int>{OnWhite(pixel[0], pixel[3]), OnWhite(pixel[1], pixel[3]),
                              OnWhite(pixel[2], pixel[3])};
    };
  };
  CheckColors(Decode(EncodeWebp(kWidth, kHeight, rgba, -1)), color(rgba));
  CheckColors(Decode(EncodeWebpAnimation(kWidth, kHeight, {rgba, other})), color(rgba));
  std::vector<uint8_t> smooth = Smooth(4);
  for (size_t i = 3; i < smooth.size(); i += 4) smooth[i] = 255;
  CheckColors(Decode(EncodeWebp(kWidth, kHeight, smooth, 100)), color(smooth), 12);
}

TEST_CASE("images are turned as their EXIF orientation asks") {
  const std::vector<uint8_t> bytes = RandomBytes(kPixels * 3, 7);
  const auto pixel = [&](size_t row, size_t column) {
    return std::vector<uint8_t>(&bytes[(row * kWidth + column) * 3],
                                &bytes[(row * kWidth + column) * 3] + 3);
  };
  for (int orientation = 0; orientation <= 9; ++orientation) {
    CAPTURE(orientation);
    const std::string tiff = OrientationTiff(orientation, orientation % 2 == 0);
    const RgbImage image = Decode(EncodePng(kWidth, kHeight, {.exif = tiff}, Text(bytes))).value();
    const bool is_turned = orientation >= 5 && orientation <= 8;
    REQUIRE(image.size.width == (is_turned ? kHeight : kWidth));
    REQUIRE(image.size.height == (is_turned ? kWidth : kHeight));
    const size_t last_row = kHeight - 1, last_column = kWidth - 1;
    for (size_t y = 0; y < static_cast<size_t>(image.size.height); ++y) {
      for (size_t x = 0; x < static_cast<size_t>(image.size.width); ++x) {
        // Where EXIF says that row 0 and column 0 of the file are shown.
        const std::vector<std::vector<size_t>> places = {{y, x},
                                                         {y, x},
                                                         {y, last_column - x},
                                                         {last_row - y, last_column - x},
                                                         {last_row - y, x},
                                                         {x, y},
                                                         {last_row - x, y},
                                                         {last_row - x, last_column - y},
                                                         {x, last_column - y},
                                                         {y, x}};
        const std::vector<size_t>& place = places[static_cast<size_t>(orientation)];
        const size_t at = (y * static_cast<size_t>(image.size.width) + x) * 3;
        REQUIRE(std::vector<uint8_t>(&image.rgb[at], &image.rgb[at] + 3) ==
                pixel(place[0], place[1]));
      }
    }
  }
  const std::string tiff = OrientationTiff(6, false);
  CHECK(Decode(EncodeJpeg(kWidth, kHeight, 3, bytes, 90, tiff))->size.width == kHeight);
}

TEST_CASE("what is no PNG, JPEG or WebP image is refused by name") {
  const auto error = [](const std::string& bytes) {
    const auto image = Decode(bytes);
    CHECK(image.status().code() == StatusCode::kInvalidArgument);
    return image.status().message();
  };
  const std::string supported = "; PNG, JPEG and WebP are supported";
  CHECK(error("GIF89a…") == "the image is a GIF image" + supported);
  CHECK(error("BM…") == "the image is a BMP image" + supported);
  CHECK(error(std::string("II*\0…", 8)) == "the image is a TIFF image" + supported);
  CHECK(error("1234ftypavif") == "the image is an AVIF image" + supported);
  CHECK(error("<svg xmlns=") == "the image is an SVG image" + supported);
  CHECK(error("hello") == "the image is of a kind that is not known" + supported);
  CHECK(error("") == "the image is an empty file" + supported);
  CHECK(error("1234567 WEBP").find("not known") != std::string::npos);
}

TEST_CASE("an image that is cut short is refused wherever it is cut") {
  const std::vector<uint8_t> rgba = RandomBytes(kPixels * 4, 8);
  const std::string files[] = {
      EncodePng(kWidth, kHeight, {.color_type = 6}, Text(rgba)),
      EncodeJpeg(kWidth, kHeight, 4, rgba, 90), EncodeWebp(kWidth, kHeight, rgba, -1),
      EncodeWebp(kWidth, kHeight, rgba, 50), EncodeWebpAnimation(kWidth, kHeight, {rgba, rgba})};
  for (const std::string& file : files) {
    REQUIRE(Decode(file).ok());
    for (size_t size = 0; size < file.size(); ++size) {
      CAPTURE(size, file.size());
      const auto image = Decode(file.substr(0, size));
      // The last bytes of a file may say nothing about its pixels.
      if (!image.ok()) {
        CHECK(image.status().code() == StatusCode::kInvalidArgument);
      } else {
        CHECK(size + 20 > file.size());
      }
    }
  }
}

TEST_CASE("an image beyond the limits is refused by its size, before its pixels") {
  const std::vector<uint8_t> rgba = RandomBytes(kPixels * 4, 9);
  const std::string files[] = {EncodePng(kWidth, kHeight, {.color_type = 6}, Text(rgba)),
                               EncodeJpeg(kWidth, kHeight, 4, rgba, 90),
                               EncodeWebp(kWidth, kHeight, rgba, -1)};
  for (const std::string& file : files) {
    for (const DecodeLimits limits :
         {DecodeLimits{.max_pixels = kPixels - 1}, DecodeLimits{.max_side = kWidth - 1}}) {
      const auto image = DecodeImage(file, limits);
      REQUIRE_FALSE(image.ok());
      CHECK(image.status().message().find("the image is 7 x 5 pixels; at most ") == 0);
    }
    CHECK(DecodeImage(file, {.max_pixels = kPixels, .max_side = kWidth}).ok());
  }
  // Nothing but a header; its checksum is that of its fields.
  const std::string huge("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xff\xff\0\0\xff\xff\x08\x02\0\0\0", 29);
  uint32_t crc = 0xffffffff;
  for (const char byte : huge.substr(12)) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 == 1 ? 0xedb88320 : 0);
  }
  std::string file = huge;
  for (const int shift : {24, 16, 8, 0}) file += static_cast<char>(~crc >> shift & 0xff);
  file += std::string("\0\0\0\0IDAT", 8);
  const auto image = Decode(file);
  REQUIRE_FALSE(image.ok());
  CHECK(image.status().message() ==
        "the image is 65535 x 65535 pixels; at most 100663296 are allowed, and 65535 on a side");
}

}  // namespace
}  // namespace tandem
