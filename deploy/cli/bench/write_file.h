#pragma once

// Whole files as text: datasets and results of benches. Any thread.
// Failure: NOT_FOUND for what cannot be read, UNAVAILABLE for what cannot be written; the message
// names the path. A pipe can be read as well (common/read_file wants a size beforehand).

#include <string>

#include "common/status.h"

namespace tandem {

StatusOr<std::string> ReadAllText(const std::string& path);
// In place of what the file held.
Status WriteAllText(const std::string& path, const std::string& text);

}  // namespace tandem
