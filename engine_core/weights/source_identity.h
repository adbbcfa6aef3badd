#pragma once

// Whether a model's files are those that something was made of: a hash of their names, sizes and
// times of change. Thread: any; looks at the files' attributes, not into them.
// Failure: NOT_FOUND where there is no such model.

#include <string>

#include "common/status.h"

namespace tandem {

// model: a folder, whose weights and JSON count; or a GGUF file with all its parts.
StatusOr<std::string> SourceIdentity(const std::string& model);

}  // namespace tandem
