#pragma once

// The life of a process that holds one image: decodes and resizes it and writes the pixels that a
// model's tower takes. It works on what a stranger sent, with libraries that strangers have broken
// before: it has no files and no network, and limits on time and memory.
// Thread: main of a process that was forked for this. Ends after its reply (media/protocol.h), and
// as soon as the other end of its socket is closed. Failure: an error reply.

#include <cstdint>
#include <functional>

#include "common/forking/forking_program.h"
#include "media/decoder/decode_image.h"

namespace tandem {

// Limits of one image's process.
struct ImageWorkerLimits {
  DecodeLimits decode;
  int cpu_ms = 20'000;
  int wall_ms = 60'000;                     // for a process that waits
  int64_t memory_bytes = int64_t{2} << 30;  // of addresses, beyond what it begins with
};

using ImageDecoder = std::function<StatusOr<RgbImage>(std::string_view, const DecodeLimits&)>;

// decode: DecodeImage, but for tests. Returns the process's exit status.
int RunImageWorker(ForkedJob job, const ImageWorkerLimits& limits, const ImageDecoder& decode);

}  // namespace tandem
