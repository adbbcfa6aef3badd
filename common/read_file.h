#pragma once

// A small file as text. Any thread. Failure: NOT_FOUND and the like with the system's words, a
// folder, more than max_bytes; the message begins with the path.

#include <cstdint>
#include <string>

#include "common/status.h"

namespace tandem {

StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

}  // namespace tandem
