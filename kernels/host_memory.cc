#include "kernels/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

namespace tandem {

StatusOr<OwnedTensor> AllocateHost(DType dtype, std::span<const int64_t> shape) {
  constexpr size_t kHugePage = size_t{2} << 20;
  Tensor view;
  view.dtype = dtype;
  CHECK_LE(shape.size(), view.shape.size());
  double size = SizeOf(dtype);
  for (int64_t dim : shape) {
    CHECK_GE(dim, 0);
    view.shape[view.rank++] = dim;
    size *= static_cast<double>(dim);
  }
  // More than any host has, and more than the products below can hold.
  if (size > 0x1p62)
    return ResourceExhaustedError("cannot allocate more than 2^62 bytes of memory");
  view.row_stride = view.RowSize();

  // Fresh mappings are zero and page-aligned. Large ones get room to start on a huge page.
  size_t bytes = static_cast<size_t>(view.NumBytes());
  bytes = bytes == 0 ? 1 : bytes;
  const size_t mapped = bytes < kHugePage ? bytes : bytes + kHugePage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhaustedError("cannot allocate " + std::to_string(bytes) +
                                  " bytes of memory: " + ErrnoError(errno, "mmap").message());
  }
  view.data = memory;
  if (mapped > bytes) {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    view.data = static_cast<std::byte*>(memory) + (kHugePage - address % kHugePage) % kHugePage;
    madvise(view.data, bytes, MADV_HUGEPAGE);  // advice: small pages work too
  }
  return OwnedTensor(OwnedTensor::Memory(memory, [mapped](void* m) { munmap(m, mapped); }), view);
}

}  // namespace tandem
