#pragma once

// How much memory the cgroups of this process allow it: the tightest limit of its own cgroup and
// those above it, of version 2 and of version 1 (where the memory controller is still a version 1
// one). Thread: any. Units: bytes. A file that cannot be read limits nothing.

#include <cstdint>
#include <limits>
#include <string>

namespace tandem {

struct CgroupMemory {
  int64_t limit_bytes = std::numeric_limits<int64_t>::max();
  // The least that is left below any of the limits; the page cache counts as free.
  int64_t available_bytes = std::numeric_limits<int64_t>::max();
};

// root: the folder that has /proc and /sys; tests make their own.
CgroupMemory ReadCgroupMemory(const std::string& root = "");

}  // namespace tandem
