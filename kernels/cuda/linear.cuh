#pragma once

// Shared by the kernels for products of few rows: their arguments, and the storing of a sum. Device
// code.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace tandem {

inline constexpr int kSkinnyRows = 16;
inline constexpr int kSkinnyWarps = 8;
inline constexpr int kSkinnyThreads = kSkinnyWarps * kWarpSize;
inline constexpr int64_t kMinWarpsPerMultiprocessor = 32;

struct LinearArgs {
  int64_t x_stride, weight_stride, out_stride;
  int64_t m, n, k;
  const float* bias;  // or null
  bool accumulate;    // add to out
};

struct SkinnyArgs {
  LinearArgs linear;
  int split = 1;         // warps that share a column's depth: 1, 2, 4 or 8
  bool is_gelu = false;  // the gate's activation; else silu
  const float* norm_weight = nullptr;
  float epsilon = 0;
};

template <class Out>
__device__ inline void StoreSum(Out* out, const LinearArgs& args, int64_t row, int64_t column,
                                float sum) {
  if (args.bias != nullptr) sum += args.bias[column];
  out += row * args.out_stride + column;
  if (args.accumulate) sum += LoadFloat(out);
  StoreFloat(out, sum);
}

// sums: the column's, or the gate's and that of the column it multiplies.
template <int kSums, class Out>
__device__ inline void StoreSums(Out* out, const SkinnyArgs& args, int64_t row, int64_t column,
                                 const float (&sums)[kSums]) {
  const LinearArgs& linear = args.linear;
  if constexpr (kSums == 1) {
    StoreSum(out, linear, row, column, sums[0]);
  } else {
    const bool has_bias = linear.bias != nullptr;
    const float gate = sums[0] + (has_bias ? linear.bias[column] : 0);
    const float up = sums[1] + (has_bias ? linear.bias[linear.n / 2 + column] : 0);
    const float open = args.is_gelu ? TanhGelu::Of(gate) : Silu::Of(gate);
    StoreFloat(out + row * linear.out_stride + column, open * up);
  }
}

// Whether rows of x can be read 16 bytes at a time, as a weight's can.
template <class T>
bool HasWideRows(const T* x, const LinearArgs& args) {
  constexpr int64_t kWidth = 16 / sizeof(T);
  return args.k % kWidth == 0 && args.x_stride % kWidth == 0 &&
         reinterpret_cast<uintptr_t>(x) % 16 == 0;
}

// Warps per column: as many as fill the device while each has a depth of `least_depth` or more.
inline int ChooseSplit(int64_t num_warps, int64_t k, int64_t least_depth,
                       int64_t num_multiprocessors) {
  int split = 1;
  while (split < kSkinnyWarps &&
         num_warps * split < kMinWarpsPerMultiprocessor * num_multiprocessors &&
         k >= 2 * split * least_depth) {
    split *= 2;
  }
  return split;
}

// Products of few rows on the tensor cores, without a norm; chooses the split. False: rows of x are
// not multiples of 16 bytes, aligned to 16 bytes, and nothing was done.
template <class Out>
bool LaunchTensorCores(OverlappingStream stream, Out* out, const Bf16* x, const Bf16* weight,
                       bool is_gated, SkinnyArgs args, int64_t num_multiprocessors);

}  // namespace tandem
