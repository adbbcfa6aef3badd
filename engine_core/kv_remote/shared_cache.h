#pragma once

// A holder's cache as a file in memory that readers of the same host map, so that a block is copied
// once. A reader can neither write to it nor be killed by it: its size is sealed.
// Thread: ShareMemory any; a mapping is its owner's. Failure: the system's; DATA_LOSS for a file
// that is not what its holder claims.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

// Puts a file in the place of the memory, which then is zeros; to be read only by others. It can
// cost huge pages: those of such files are off by default (transparent_hugepage/shmem_enabled).
// REQUIRES: [memory, memory + bytes) is private, from the begin of a page, and nothing in it
// counts.
StatusOr<UniqueFd> ShareMemory(std::byte* memory, int64_t bytes);

struct UnmapCache {
  size_t bytes = 0;
  void operator()(const std::byte* memory) const { munmap(const_cast<std::byte*>(memory), bytes); }
};

// Another process's cache.
class MappedCache {
 public:
  MappedCache() = default;
  // bytes: what the holder claims.
  static StatusOr<MappedCache> Open(const UniqueFd& file, uint64_t bytes);

  const std::byte* memory() const { return memory_.get(); }  // null: none

 private:
  std::unique_ptr<const std::byte, UnmapCache> memory_;
};

}  // namespace tandem
