#include "kernels/host_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace tandem {

void GiveBackPages(std::span<std::byte> memory) {
  constexpr size_t kPage = 4096;
  const size_t skipped = -reinterpret_cast<uintptr_t>(memory.data()) % kPage;
  if (memory.size() < skipped + kPage) return;
  std::byte* const begin = memory.data() + skipped;
  const size_t bytes = (memory.size() - skipped) / kPage * kPage;
  // The first is for files in memory alone, and refuses other mappings.
  if (madvise(begin, bytes, MADV_REMOVE) != 0) madvise(begin, bytes, MADV_DONTNEED);
}

}  // namespace tandem
