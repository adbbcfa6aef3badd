#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string>
#include <vector>

#include "media/decoder/decode_image.h"
#include "media/decoder/exif.h"

namespace tandem {
namespace {

constexpr size_t kMaxChunkBytes = size_t{8} << 20;  // of a chunk other than the pixels, inflated
constexpr uint32_t kMaxChunks = 1000;               // of those that are kept

// libpng leaves by longjmp, over functions here that hold nothing to destroy.
class PngReader {
 public:
  explicit PngReader(std::string_view bytes) : left_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;

  // Up to the pixels, which will come as [height, width, 4]. False: reason() says why.
  bool ReadHeader() {
    if (png_ == nullptr || info_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, OnRead);
    // What is too large is refused by CheckedSize, with its size.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, kMaxChunkBytes);
    png_set_chunk_cache_max(png_, kMaxChunks);
    png_read_info(png_, info_);
    return true;
  }
  bool ReadPixels(std::vector<png_bytep>* rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows->data());
    png_read_end(png_, info_);
    return true;
  }
  // Any form to 8 bits of red, green, blue and alpha.
  bool AskForRgba() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_strip_16(png_);
    png_set_expand(png_);
    png_set_gray_to_rgb(png_);
    png_set_add_alpha(png_, 0xff, PNG_FILLER_AFTER);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  uint64_t height() const { return png_get_image_height(png_, info_); }
  uint64_t width() const { return png_get_image_width(png_, info_); }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  const std::string& reason() const { return reason_; }
  int orientation() const {
    png_bytep exif = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(png_, info_, &size, &exif) == 0) return 1;
    return ExifOrientation({reinterpret_cast<const char*>(exif), size});
  }

 private:
  [[noreturn]] static void OnError(png_structp png, png_const_charp message) {
    static_cast<PngReader*>(png_get_error_ptr(png))->reason_ = message;
    png_longjmp(png, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}
  static void OnRead(png_structp png, png_bytep to, size_t size) {
    auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > reader->left_.size()) png_error(png, "the file is truncated");
    std::memcpy(to, reader->left_.data(), size);
    reader->left_.remove_prefix(size);
  }

  std::string_view left_;
  std::string reason_ = "no memory";
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

StatusOr<RgbImage> DecodePng(std::string_view bytes, const DecodeLimits& limits, int* orientation) {
  PngReader reader(bytes);
  if (!reader.ReadHeader()) return CannotDecode("PNG", reader.reason());
  ASSIGN_OR_RETURN(const ImageSize size, CheckedSize(reader.height(), reader.width(), limits));
  if (!reader.AskForRgba()) return CannotDecode("PNG", reader.reason());
  const size_t row_bytes = static_cast<size_t>(size.width) * 4;
  if (reader.row_bytes() != row_bytes) return CannotDecode("PNG", "an unknown form of pixels");
  std::vector<uint8_t> rgba(row_bytes * static_cast<size_t>(size.height));
  std::vector<png_bytep> rows;
  for (size_t y = 0; y < static_cast<size_t>(size.height); ++y) {
    rows.push_back(rgba.data() + y * row_bytes);
  }
  if (!reader.ReadPixels(&rows)) return CannotDecode("PNG", reader.reason());
  *orientation = reader.orientation();  // it may lie after the pixels
  return OverWhite(size, rgba.data());
}

}  // namespace tandem
