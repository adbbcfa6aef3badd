#pragma once

// `tandem pack MODEL OUT [flags]`: the engine core writes the model's packed matrices into a new
// folder. `tandem pack --verify OUT`: it compares the bytes of one with their hashes. Thread: main.

#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {

// The engine core's words; a model of a hub is downloaded first where the cache lacks it.
// INVALID_ARGUMENT: a command line that names no model or no folder.
StatusOr<std::vector<std::string>> PackWords(const std::vector<std::string>& args);

}  // namespace tandem
