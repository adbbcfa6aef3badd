#include "kernels/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <thread>
#include <utility>

namespace tandem {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// What an adapter of rank 16 takes for a model of 1.1b is six of them.
constexpr int64_t kChunkBytes = int64_t{4} << 20;
constexpr int64_t kAlignment = 64;

// A view without its data.
StatusOr<Tensor> ViewOf(DType dtype, std::span<const int64_t> shape) {
  Tensor view;
  view.dtype = dtype;
  CHECK_LE(shape.size(), view.shape.size());
  double size = SizeOf(dtype);
  for (int64_t dim : shape) {
    CHECK_GE(dim, 0);
    view.shape[view.rank++] = dim;
    size *= static_cast<double>(dim);
  }
  // More than any host has, and more than products of the shape can hold.
  if (size > 0x1p62)
    return ResourceExhaustedError("cannot allocate more than 2^62 bytes of memory");
  view.row_stride = view.RowSize();
  return view;
}

}  // namespace

StatusOr<OwnedTensor> AllocateHost(DType dtype, std::span<const int64_t> shape) {
  ASSIGN_OR_RETURN(Tensor view, ViewOf(dtype, shape));
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

StatusOr<OwnedTensor> HostArena::Allocate(DType dtype, std::span<const int64_t> shape) {
  ASSIGN_OR_RETURN(Tensor view, ViewOf(dtype, shape));
  const int64_t bytes = (view.NumBytes() + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > kChunkBytes) return AllocateHost(dtype, shape);
  int64_t begin = 0;
  while (is_taken_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  StatusOr<std::shared_ptr<const OwnedTensor>> chunk = Take(bytes, &begin);
  is_taken_.clear(std::memory_order_release);
  if (!chunk.ok()) return chunk.status();
  view.data = static_cast<std::byte*>((*chunk)->view().data) + begin;
  return OwnedTensor(OwnedTensor::Memory(view.data, [chunk = *chunk](void*) {}), view);
}

StatusOr<std::shared_ptr<const OwnedTensor>> HostArena::Take(int64_t bytes, int64_t* begin) {
  if (chunk_ == nullptr || num_used_ + bytes > kChunkBytes) {
    const int64_t shape[] = {kChunkBytes};
    ASSIGN_OR_RETURN(OwnedTensor memory, AllocateHost(DType::kI8, shape));
    chunk_ = std::make_shared<const OwnedTensor>(std::move(memory));
    num_used_ = 0;
  }
  *begin = num_used_;
  num_used_ += bytes;
  return chunk_;
}

}  // namespace tandem
