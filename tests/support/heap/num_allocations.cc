#include "tests/support/heap/num_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> num_allocations{0};

}  // namespace

void* operator new(size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  std::abort();
}
// Sanitizers match each form of new with its delete: the nothrow one must be ours as well.
void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return operator new(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { std::free(memory); }

namespace tandem {

int64_t NumAllocations() { return num_allocations; }

}  // namespace tandem
