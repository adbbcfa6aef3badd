#pragma once

// Rows of numbers whose type is chosen at run time, for kernels that are not bound by reading them:
// one kernel in place of one for each pair of types. Device code.

#include "kernels/cuda/device.cuh"

namespace tandem {

struct AnyRows {
  void* data;
  int64_t stride;  // numbers
  bool is_bf16;

  __device__ float Load(int64_t row, int64_t column) const {
    const int64_t i = row * stride + column;
    return is_bf16 ? LoadFloat(static_cast<const Bf16*>(data) + i)
                   : static_cast<const float*>(data)[i];
  }
  __device__ void Store(int64_t row, int64_t column, float value) const {
    const int64_t i = row * stride + column;
    if (is_bf16) {
      StoreFloat(static_cast<Bf16*>(data) + i, value);
    } else {
      static_cast<float*>(data)[i] = value;
    }
  }
};

inline AnyRows RowsOf(const Tensor& x) { return {x.data, x.row_stride, x.dtype == DType::kBf16}; }

}  // namespace tandem
