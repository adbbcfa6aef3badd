#pragma once

// The one thing of EXIF that changes an image. Pure; any thread.

#include <string_view>

namespace tandem {

// The orientation, 1…8, that a TIFF structure names, as it lies in a JPEG's APP1 (after
// "Exif\0\0"), in a PNG's eXIf and in a WebP's EXIF. 1: it names none, or is malformed.
int ExifOrientation(std::string_view tiff);

}  // namespace tandem
