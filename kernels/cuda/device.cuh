#pragma once

// What the kernels here are written with: numbers of either compute type as float32, and sums over
// a warp or a block. Device code; every function is for all threads of the warp or block at once.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/tensor.h"

namespace tandem {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;

__device__ inline float LoadFloat(const float* x) { return *x; }
__device__ inline float LoadFloat(const Bf16* x) { return ToFloat(*x); }
__device__ inline void StoreFloat(float* out, float value) { *out = value; }
__device__ inline void StoreFloat(Bf16* out, float value) { *out = ToBf16(value); }

// 16 bytes of numbers, the widest load there is.
template <class T>
struct Wide {
  static constexpr int kSize = 16 / sizeof(T);
  float values[kSize];
};

// What is on its way from memory takes four registers until it is widened.
template <class T>
__device__ inline uint4 LoadRaw(const T* x) {
  return *reinterpret_cast<const uint4*>(x);
}
template <class T>
__device__ inline Wide<T> Widen(uint4 raw) {
  const unsigned words[] = {raw.x, raw.y, raw.z, raw.w};
  Wide<T> wide;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Wide<T>::kSize == 4) {
      wide.values[i] = std::bit_cast<float>(words[i]);
    } else {
      wide.values[2 * i] = std::bit_cast<float>(words[i] << 16);
      wide.values[2 * i + 1] = std::bit_cast<float>(words[i] & 0xffff0000);
    }
  }
  return wide;
}

struct Silu {
  __device__ static float Of(float x) { return x / (1 + expf(-x)); }
};
struct TanhGelu {
  __device__ static float Of(float x) {
    constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
    return 0.5f * x * (1 + tanhf(kRoot * (x + 0.044715f * x * x * x)));
  }
};

template <int kWidth = kWarpSize>
__device__ inline float WarpSum(float value) {
#pragma unroll
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, mask);
  }
  return value;
}

template <int kWidth = kWarpSize>
__device__ inline float WarpMax(float value) {
#pragma unroll
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, mask));
  }
  return value;
}

// The sum over a block of kThreads (a multiple of 32), the same in every thread.
template <int kThreads>
__device__ inline float BlockSum(float value) {
  __shared__ float sums[kThreads / kWarpSize];
  value = WarpSum(value);
  __syncthreads();  // of an earlier call, all have read
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / kWarpSize; ++warp) total += sums[warp];
  return total;
}

}  // namespace tandem
