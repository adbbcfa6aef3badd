#pragma once

// A whole file as text, including pipes and files of /proc, whose size is not known beforehand.
// Any thread; waits for a pipe's end, and writer_limit_s for one who writes: what was written for
// an earlier start is gone. Failure: the system's error (NOT_FOUND …), a folder, more than
// max_bytes, a pipe that nobody opens to write; the message begins with the path.

#include <cstdint>
#include <string>

#include "common/status.h"

namespace tandem {

StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes, int writer_limit_s = 10);
// The same, but an empty text when there is no such file.
StatusOr<std::string> ReadFileIfAny(const std::string& path, int64_t max_bytes);

}  // namespace tandem
