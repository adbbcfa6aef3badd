#include "tests/support/images/encode_image.h"

#include <cstdio>
#include <cstdlib>
// After <cstdio>, which it does not include itself.
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>
#include <webp/mux.h>

#include "common/check.h"

namespace tandem {
namespace {

void AppendPng(png_structp png, png_bytep bytes, size_t size) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(bytes), size);
}

std::vector<png_color> Colors(const std::vector<uint8_t>& palette) {
  std::vector<png_color> colors;
  for (size_t i = 0; i + 2 < palette.size(); i += 3) {
    colors.push_back({palette[i], palette[i + 1], palette[i + 2]});
  }
  return colors;
}

void SetChunks(png_structp png, png_infop info, const PngForm& form) {
  if (!form.palette.empty()) {
    const std::vector<png_color> colors = Colors(form.palette);
    png_set_PLTE(png, info, colors.data(), static_cast<int>(colors.size()));
  }
  if (!form.palette_alpha.empty()) {
    png_set_tRNS(png, info, form.palette_alpha.data(), static_cast<int>(form.palette_alpha.size()),
                 nullptr);
  }
  if (form.exif.empty()) return;
  std::string exif(form.exif);
  png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()),
                 reinterpret_cast<png_bytep>(exif.data()));
}

}  // namespace

std::string EncodePng(int width, int height, const PngForm& form, const std::string& rows) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &bytes, AppendPng, nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               form.bit_depth, form.color_type,
               form.is_interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
  SetChunks(png, info, form);
  png_write_info(png, info);
  const size_t row_bytes = png_get_rowbytes(png, info);
  CHECK_EQ(rows.size(), row_bytes * static_cast<size_t>(height));
  std::string copy = rows;
  std::vector<png_bytep> pointers;
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    pointers.push_back(reinterpret_cast<png_bytep>(copy.data() + y * row_bytes));
  }
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

std::string EncodeJpeg(int width, int height, int num_channels, const std::vector<uint8_t>& pixels,
                       int quality, std::string_view exif) {
  jpeg_error_mgr errors;
  jpeg_compress_struct jpeg;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = num_channels;
  jpeg.in_color_space = num_channels == 1 ? JCS_GRAYSCALE : num_channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  for (int i = 0; i < jpeg.num_components; ++i) {  // each pixel has colours of its own
    jpeg.comp_info[i].h_samp_factor = jpeg.comp_info[i].v_samp_factor = 1;
  }
  jpeg_start_compress(&jpeg, TRUE);
  if (!exif.empty()) {
    const std::string marker = std::string("Exif\0\0", 6) + std::string(exif);
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(marker.data()),
                      static_cast<unsigned>(marker.size()));
  }
  std::vector<uint8_t> copy = pixels;
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    JSAMPROW row = copy.data() + y * static_cast<size_t>(width * num_channels);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  std::free(memory);
  return bytes;
}

std::string EncodeWebp(int width, int height, const std::vector<uint8_t>& rgba, float quality) {
  uint8_t* memory = nullptr;
  const size_t size = quality < 0
                          ? WebPEncodeLosslessRGBA(rgba.data(), width, height, width * 4, &memory)
                          : WebPEncodeRGBA(rgba.data(), width, height, width * 4, quality, &memory);
  CHECK(size > 0);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  WebPFree(memory);
  return bytes;
}

std::string EncodeWebpAnimation(int width, int height,
                                const std::vector<std::vector<uint8_t>>& frames) {
  WebPAnimEncoder* encoder = WebPAnimEncoderNew(width, height, nullptr);
  WebPConfig config;
  CHECK(WebPConfigInit(&config) != 0);
  config.lossless = config.exact = 1;
  int time_ms = 0;
  for (const std::vector<uint8_t>& frame : frames) {
    WebPPicture picture;
    CHECK(WebPPictureInit(&picture) != 0);
    picture.use_argb = 1;
    picture.width = width;
    picture.height = height;
    CHECK(WebPPictureImportRGBA(&picture, frame.data(), width * 4) != 0);
    CHECK(WebPAnimEncoderAdd(encoder, &picture, time_ms, &config) != 0);
    WebPPictureFree(&picture);
    time_ms += 100;
  }
  CHECK(WebPAnimEncoderAdd(encoder, nullptr, time_ms, nullptr) != 0);
  WebPData data;
  CHECK(WebPAnimEncoderAssemble(encoder, &data) != 0);
  std::string bytes(reinterpret_cast<const char*>(data.bytes), data.size);
  WebPDataClear(&data);
  WebPAnimEncoderDelete(encoder);
  return bytes;
}

std::string OrientationTiff(int orientation, bool is_big_endian) {
  const auto number = [&](uint32_t value, int size) {
    std::string bytes;
    for (int i = 0; i < size; ++i) {
      const int shift = 8 * (is_big_endian ? size - 1 - i : i);
      bytes += static_cast<char>(value >> shift & 0xff);
    }
    return bytes;
  };
  const auto entry = [&](uint32_t tag, uint32_t value) {  // one SHORT
    return number(tag, 2) + number(3, 2) + number(1, 4) + number(value, 2) + number(0, 2);
  };
  return (is_big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(2, 2) +
         entry(0x0103, 6) + entry(0x0112, static_cast<uint32_t>(orientation)) + number(0, 4);
}

}  // namespace tandem
