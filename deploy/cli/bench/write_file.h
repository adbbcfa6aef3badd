#pragma once

// Replaces the contents of a file: results of benches. Any thread.
// Failure: UNAVAILABLE; the message names the path.

#include <string>

#include "common/status.h"

namespace tandem {

Status WriteFile(const std::string& path, const std::string& text);

}  // namespace tandem
