#pragma once

// A whole file as text, pipes and files of /proc included, whose size is not known beforehand.
// Any thread; a pipe is waited for. Failure: NOT_FOUND and the like with the system's words, a
// folder, more than max_bytes; the message begins with the path.

#include <cstdint>
#include <string>

#include "common/status.h"

namespace tandem {

StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);
// Where there is no such file, an empty text.
StatusOr<std::string> ReadFileIfAny(const std::string& path, int64_t max_bytes);

}  // namespace tandem
