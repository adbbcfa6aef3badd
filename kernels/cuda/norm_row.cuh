#pragma once

// The RMS norm of a row, by a block: the same bits in every kernel that ends with one.

#include "kernels/cuda/device.cuh"

namespace tandem {

// out = x / rms(x) * weight, of `hidden` numbers.
template <int kThreads, class Out, class X>
__device__ inline void RmsNormRow(Out* out, const X* x, const float* weight, float epsilon,
                                  int64_t hidden) {
  float squares = 0;
  for (int64_t h = threadIdx.x; h < hidden; h += kThreads) {
    const float value = LoadFloat(x + h);
    squares += value * value;
  }
  const float scale = rsqrtf(BlockSum<kThreads>(squares) / static_cast<float>(hidden) + epsilon);
  for (int64_t h = threadIdx.x; h < hidden; h += kThreads) {
    StoreFloat(out + h, LoadFloat(x + h) * scale * weight[h]);
  }
}

}  // namespace tandem
