#include "media/decoder/exif.h"

#include <string>

#include "tests/support/images/encode_image.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("EXIF's orientation is read in both orders of bytes") {
  for (const bool is_big_endian : {false, true}) {
    for (int orientation = 1; orientation <= 8; ++orientation) {
      CHECK(ExifOrientation(OrientationTiff(orientation, is_big_endian)) == orientation);
    }
    CHECK(ExifOrientation(OrientationTiff(0, is_big_endian)) == 1);
    CHECK(ExifOrientation(OrientationTiff(9, is_big_endian)) == 1);
  }
}

TEST_CASE("malformed EXIF turns nothing") {
  const std::string tiff = OrientationTiff(6, true);
  // The orientation's value ends 6 bytes before the end.
  for (size_t size = 0; size + 6 < tiff.size(); ++size) {
    CAPTURE(size);
    CHECK(ExifOrientation(tiff.substr(0, size)) == 1);
  }
  std::string beyond = tiff;
  beyond[4] = '\xff';  // the directory's offset
  CHECK(ExifOrientation(beyond) == 1);
  std::string other = tiff;
  other[3] = 43;
  CHECK(ExifOrientation(other) == 1);
}

}  // namespace
}  // namespace tandem
