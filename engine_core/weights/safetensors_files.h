#pragma once

// Which files of a folder are a checkpoint's, where neither model.safetensors nor an index says so:
// tools write other names, and shards without an index. Any thread; reads the folder.

#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {

// Names: the only *.safetensors file, or all parts NAME-00001-of-0000N.safetensors of one model.
// Adapters and Mistral's consolidated files are none. NOT_FOUND: there is none; the message names
// weights of other formats. INVALID_ARGUMENT: which are meant is not known.
StatusOr<std::vector<std::string>> FindSafetensors(const std::string& model_dir);

}  // namespace tandem
