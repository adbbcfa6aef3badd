#include "kernels/cpu/cpu_ops.h"

#include <algorithm>

#include "kernels/host_memory.h"

namespace tandem {

OwnedTensor AllocateScratch(DType dtype, int64_t size) {
  StatusOr<OwnedTensor> memory = AllocateHost(dtype, {&size, 1});
  CHECK(memory.ok()) << memory.status().ToString();
  return std::move(memory).value();
}

CpuOps::CpuOps(DType dtype, const KernelTable& table, ComputePool* pool)
    : Ops({dtype, DType::kF32}),
      dtype_(dtype),
      table_(table),
      pool_(pool),
      scratch_(static_cast<size_t>(pool->num_threads())) {}

void CpuOps::ForEach(int64_t num_items, int64_t item_ns, ThreadRangeFunction function) {
  constexpr int64_t kMinChunkNs = 4000;
  pool_->Run(num_items, kMinChunkNs / std::max<int64_t>(item_ns, 1) + 1, function);
}

float* CpuOps::Scratch(int thread, int64_t floats) {
  OwnedTensor& scratch = scratch_[thread];
  if (scratch.view().NumElements() < floats) scratch = AllocateScratch(DType::kF32, floats);
  return static_cast<float*>(scratch.view().data);
}

Tensor CpuOps::Room(OwnedTensor* scratch, int64_t rows, int64_t columns) {
  if (scratch->view().NumElements() < rows * columns) {
    *scratch = AllocateScratch(dtype_, rows * columns);
  }
  return Tensor(scratch->view().data, dtype_, {rows, columns});
}

uint32_t* CpuOps::PackedRows(int64_t units) {
  if (packed_rows_.view().NumElements() < units) {
    packed_rows_ = AllocateScratch(DType::kI32, units);
  }
  return static_cast<uint32_t*>(packed_rows_.view().data);
}

}  // namespace tandem
