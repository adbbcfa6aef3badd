#pragma once

// What a frontend and tandem-media say to each other, as a helper program and its user
// (common/forking/forking_program.h): a job is an image; its head is a packed ImageSpec, its input
// the image's file. Its process replies once and ends: kDone, the packed size that the image was
// resized to, and a memory file with the pixels of the PreparedImage; or kError and a message.
// Pure; any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"
#include "media/image_size.h"

namespace tandem {

// The program's only argument, which nobody types by chance.
constexpr std::string_view kImageProgramArgument = "--serve-frontend";

// Of an image's file.
constexpr int64_t kMaxImageBytes = int64_t{64} << 20;

std::string PackImageSize(ImageSize size);
// Malformed, or not one that ResizedSize returns for this spec: DATA_LOSS.
StatusOr<ImageSize> UnpackResizedSize(std::string_view packed, const ImageSpec& spec);

}  // namespace tandem
