#pragma once

// What the kernel counts for this process, from /proc. Thread: any. nullopt where /proc cannot be
// read. Units: bytes, seconds.

#include <cstdint>
#include <optional>

namespace tandem {

struct ProcessStats {
  int64_t virtual_bytes = 0;
  int64_t resident_bytes = 0;
  double cpu_s = 0;       // user and system time
  double started_at = 0;  // Unix time
  int64_t open_files = 0;
  int64_t max_files = 0;  // that may be open
};

std::optional<ProcessStats> ReadProcessStats();

}  // namespace tandem
