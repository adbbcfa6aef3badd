#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <vector>

#include "media/decoder/decode_image.h"
#include "media/decoder/exif.h"

namespace tandem {
namespace {

int Orientation(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk = {};
  int orientation = 1;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) != 0) {
    std::string_view exif(reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size);
    constexpr std::string_view kJpegPrefix("Exif\0\0", 6);  // which some programs leave there
    if (exif.starts_with(kJpegPrefix)) exif.remove_prefix(kJpegPrefix.size());
    orientation = ExifOrientation(exif);
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

Status WrongData() { return CannotDecode("WebP", "its data are wrong or incomplete"); }

StatusOr<RgbImage> DecodeStill(const WebPData& data, ImageSize size) {
  std::vector<uint8_t> rgba(static_cast<size_t>(size.num_pixels()) * 4);
  if (WebPDecodeRGBAInto(data.bytes, data.size, rgba.data(), rgba.size(), size.width * 4) ==
      nullptr) {
    return WrongData();
  }
  return OverWhite(size, rgba.data());
}

// The first frame on its canvas, which is transparent elsewhere.
StatusOr<RgbImage> DecodeAnimation(const WebPData& data, ImageSize size) {
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0) return InternalError("libwebp is of another age");
  options.color_mode = MODE_RGBA;
  options.use_threads = 0;
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(
      WebPAnimDecoderNew(&data, &options), &WebPAnimDecoderDelete);
  uint8_t* rgba = nullptr;
  int timestamp_ms = 0;
  if (decoder == nullptr || WebPAnimDecoderGetNext(decoder.get(), &rgba, &timestamp_ms) == 0) {
    return WrongData();
  }
  return OverWhite(size, rgba);
}

}  // namespace

StatusOr<RgbImage> DecodeWebp(std::string_view bytes, const DecodeLimits& limits,
                              int* orientation) {
  const WebPData data = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data),
                                                                         &WebPDemuxDelete);
  if (demuxer == nullptr) return CannotDecode("WebP", "its structure is wrong or incomplete");
  ASSIGN_OR_RETURN(const ImageSize size,
                   CheckedSize(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT),
                               WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH), limits));
  *orientation = Orientation(demuxer.get());
  const bool is_animation =
      (WebPDemuxGetI(demuxer.get(), WEBP_FF_FORMAT_FLAGS) & ANIMATION_FLAG) != 0;
  return is_animation ? DecodeAnimation(data, size) : DecodeStill(data, size);
}

}  // namespace tandem
