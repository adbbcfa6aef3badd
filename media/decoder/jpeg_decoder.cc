#include <csetjmp>
#include <cstddef>
#include <cstdio>
// After <cstdio>, which it does not include itself.
#include <jerror.h>
#include <jpeglib.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "media/decoder/decode_image.h"
#include "media/decoder/exif.h"

namespace tandem {
namespace {

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr unsigned kMaxMarkerBytes = 0xffff;
constexpr std::string_view kExifPrefix("Exif\0\0", 6);

// libjpeg leaves by longjmp, over functions here that hold nothing to destroy.
class JpegReader {
 public:
  explicit JpegReader(std::string_view bytes) : bytes_(bytes) {
    jpeg_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = OnError;
    errors_.base.emit_message = OnMessage;
  }
  ~JpegReader() {
    if (is_created_) jpeg_destroy_decompress(&jpeg_);
  }
  JpegReader(const JpegReader&) = delete;

  bool ReadHeader() {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    is_created_ = true;
    jpeg_save_markers(&jpeg_, kExifMarker, kMaxMarkerBytes);
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
    jpeg_read_header(&jpeg_, TRUE);
    const bool has_four = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    jpeg_.out_color_space = has_four ? JCS_CMYK : JCS_RGB;
    jpeg_calc_output_dimensions(&jpeg_);
    return true;
  }
  // to: [height, width, num_channels()].
  bool ReadPixels(uint8_t* to) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_start_decompress(&jpeg_);
    const size_t row_bytes = size_t{jpeg_.output_width} * num_channels();
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW row = to + jpeg_.output_scanline * row_bytes;
      jpeg_read_scanlines(&jpeg_, &row, 1);
    }
    return true;
  }

  uint64_t height() const { return jpeg_.image_height; }
  uint64_t width() const { return jpeg_.image_width; }
  size_t num_channels() const { return static_cast<size_t>(jpeg_.out_color_components); }
  int orientation() const {
    for (const auto* marker = jpeg_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (data.starts_with(kExifPrefix)) return ExifOrientation(data.substr(kExifPrefix.size()));
    }
    return 1;
  }
  std::string_view reason() const { return errors_.reason; }

 private:
  struct Errors {
    jpeg_error_mgr base;  // first: libjpeg has a pointer to it
    std::jmp_buf jump;
    char reason[JMSG_LENGTH_MAX];
  };

  [[noreturn]] static void OnError(j_common_ptr jpeg) {
    auto* errors = reinterpret_cast<Errors*>(jpeg->err);
    jpeg->err->format_message(jpeg, errors->reason);
    std::longjmp(errors->jump, 1);
  }
  // Damage inside the data is tolerated, as by Pillow; a file that ends too early is not.
  static void OnMessage(j_common_ptr jpeg, int level) {
    if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF) OnError(jpeg);
  }

  std::string_view bytes_;
  bool is_created_ = false;
  Errors errors_ = {};
  jpeg_decompress_struct jpeg_ = {};
};

// Inverted, as Adobe's programs write it.
std::vector<uint8_t> CmykToRgb(const std::vector<uint8_t>& cmyk) {
  std::vector<uint8_t> rgb(cmyk.size() / 4 * 3);
  for (size_t pixel = 0; pixel < cmyk.size() / 4; ++pixel) {
    const uint32_t black = cmyk[pixel * 4 + 3];
    for (size_t channel = 0; channel < 3; ++channel) {
      const uint32_t product = (255U - cmyk[pixel * 4 + channel]) * black + 128;
      rgb[pixel * 3 + channel] = static_cast<uint8_t>(black - ((product + (product >> 8)) >> 8));
    }
  }
  return rgb;
}

}  // namespace

StatusOr<RgbImage> DecodeJpeg(std::string_view bytes, const DecodeLimits& limits,
                              int* orientation) {
  JpegReader reader(bytes);
  if (!reader.ReadHeader()) return CannotDecode("JPEG", reader.reason());
  ASSIGN_OR_RETURN(const ImageSize size, CheckedSize(reader.height(), reader.width(), limits));
  std::vector<uint8_t> pixels(static_cast<size_t>(size.num_pixels()) * reader.num_channels());
  if (!reader.ReadPixels(pixels.data())) return CannotDecode("JPEG", reader.reason());
  *orientation = reader.orientation();
  if (reader.num_channels() == 4) pixels = CmykToRgb(pixels);
  return RgbImage{.size = size, .rgb = std::move(pixels)};
}

}  // namespace tandem
