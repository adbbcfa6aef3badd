#pragma once

// Tells models apart whose KV must not be mixed. Any thread; reads some hundred KiB of each file.

#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

// 16 hex digits over a model's config.json, the names, sizes and samples of its weight files
// (`*.safetensors`, `*.gguf`, or the model itself where it is a file), and `facts`: whatever else
// decides what is computed. Samples are 64 pieces of 4 KiB, evenly spread over a file: two
// checkpoints that differ nowhere else are taken for one. Failure: the system's error, with the
// path.
StatusOr<std::string> ModelFingerprint(const std::string& model, std::string_view facts);

}  // namespace tandem
