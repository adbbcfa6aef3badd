#pragma once

// How much memory the cgroups of this process leave it: the tightest limit of its own cgroup and of
// every one above it, versions 2 and 1 (where the memory controller still is one of version 1).
// Thread: any. Units: bytes. What cannot be read limits nothing.

#include <cstdint>
#include <limits>
#include <string>

namespace tandem {

struct CgroupMemory {
  int64_t limit_bytes = std::numeric_limits<int64_t>::max();
  // Least that is left below a limit; the page cache counts as free.
  int64_t available_bytes = std::numeric_limits<int64_t>::max();
};

// root: where /proc and /sys are looked for; tests have trees of their own.
CgroupMemory ReadCgroupMemory(const std::string& root = "");

}  // namespace tandem
