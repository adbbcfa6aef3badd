#pragma once

// Where the blocks of a kernel for all experts of a layer find theirs, on the device.

#include "kernels/cuda/device.cuh"

namespace tandem {

struct ExpertList {
  const int32_t* chosen;
  const int32_t* begin;
  const void* const* matrices;
};

// run(first row, number of rows, matrix, expert), for each kRows rows or fewer of the block's
// expert.
template <int kRows, class T, class F>
__device__ inline void ForEachRows(const ExpertList& experts, F run) {
  const int32_t expert = experts.chosen[blockIdx.y];
  if (expert < 0) return;
  const auto* matrix = static_cast<const T*>(experts.matrices[expert]);
  const int64_t end = experts.begin[expert + 1];
  for (int64_t row = experts.begin[expert]; row < end; row += kRows) {
    run(row, end - row < kRows ? end - row : kRows, matrix, expert);
    __syncthreads();  // all threads have read shared memory
  }
}

}  // namespace tandem
