#pragma once

// Products of few rows by plain multiplications. Device code, for all threads of a block of
// kSkinnyThreads; block x of the grid computes as many columns as its warps do.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/linear.cuh"

namespace tandem {

// Beyond this many rows plain multiplications take longer than reading the weights.
inline constexpr int kPlainRows = 4;
inline constexpr int kNormedBytes = 32 << 10;  // of normalised rows of x in a block

// Least depth for a warp that shares a column: two loads for each lane.
template <class T>
constexpr int64_t LeastDepth() {
  return 2 * kWarpSize * Wide<T>::kSize;
}

// A lane's loads in flight: kUnroll pieces of 16 bytes of each of its warp's weight rows.
template <int kUnroll, int kColumns, class T>
struct WeightPieces {
  uint4 raw[kUnroll][kColumns];

  __device__ void Load(const T* const (&rows)[kColumns], int64_t k, int64_t step, int64_t end) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        raw[u][c] = k + u * step < end ? LoadRaw(rows[c] + k + u * step) : uint4{0, 0, 0, 0};
      }
    }
  }
};

// One warp, or `split` of them, per output column and kM rows: lanes read the weight's row 16 bytes
// at a time, several loads in flight at once, and every row of x uses them. kGated: a warp has the
// rows of the gate and of the column it multiplies. kNormed: each block normalises x for itself
// while its first weights are in flight. kWide: rows of x are as aligned as the weight's. kWaits:
// waits for the previous kernel once the first weights are in flight.
template <int kM, bool kGated, bool kNormed, bool kWide, bool kWaits, class Out, class X, class T>
__device__ inline void MultiplySkinnyRows(Out* out, const X* x, const T* weight,
                                          const SkinnyArgs& args) {
  constexpr int kWidth = Wide<T>::kSize;
  constexpr int kColumns = kGated ? 2 : 1;
  constexpr int kUnroll = kM * kColumns > 4 ? 2 : 4;
  __shared__ uint4 normed_memory[kNormed ? kNormedBytes / sizeof(uint4) : 1];
  __shared__ float partial[kSkinnyWarps][kM * kColumns];
  const LinearArgs& linear = args.linear;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int part = warp % args.split;
  const int64_t num_columns = kGated ? linear.n / 2 : linear.n;
  const int64_t column = int64_t{blockIdx.x} * (kSkinnyWarps / args.split) + warp / args.split;
  const bool has_column = column < num_columns;
  const T* rows[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    rows[c] = weight + (has_column ? column + c * num_columns : 0) * linear.weight_stride;
  }
  const int64_t step = int64_t{args.split} * kWarpSize * kWidth;
  const int64_t end = has_column ? linear.k : 0;
  int64_t k = (int64_t{part} * kWarpSize + lane) * kWidth;
  WeightPieces<kUnroll, kColumns, T> pieces;
  pieces.Load(rows, k, step, end);  // rows of the weight are padded with zeros
  if constexpr (kWaits) WaitForPreviousKernel();

  [[maybe_unused]] const int64_t normed_stride = (linear.k + kWidth - 1) / kWidth * kWidth;
  [[maybe_unused]] T* normed = reinterpret_cast<T*>(normed_memory);
  if constexpr (kNormed) {
    for (int row = 0; row < kM; ++row) {
      if (row >= linear.m) break;
      const X* from = x + row * linear.x_stride;
      T* to = normed + row * normed_stride;
      // In the order of RmsNormKernel, so that both have the same bits.
      float squares = 0;
      for (int64_t h = threadIdx.x; h < linear.k; h += kSkinnyThreads) {
        const float value = LoadFloat(from + h);
        squares += value * value;
      }
      const float scale =
          rsqrtf(BlockSum<kSkinnyThreads>(squares) / static_cast<float>(linear.k) + args.epsilon);
      for (int64_t h = threadIdx.x; h < normed_stride; h += kSkinnyThreads) {
        StoreFloat(to + h, h < linear.k ? LoadFloat(from + h) * scale * args.norm_weight[h] : 0);
      }
    }
    __syncthreads();
  }

  float sums[kM][kColumns];
#pragma unroll
  for (int row = 0; row < kM; ++row) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[row][c] = 0;
  }
  while (k < end) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = k + u * step;
      if (at >= end) break;
      Wide<T> numbers[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) numbers[c] = Widen<T>(pieces.raw[u][c]);
#pragma unroll
      for (int row = 0; row < kM; ++row) {
        if (row >= linear.m) break;
        Wide<T> factors;
        if constexpr (kNormed) {
          factors = Widen<T>(LoadRaw(normed + row * normed_stride + at));
        } else if constexpr (kWide) {
          factors = Widen<T>(LoadRaw(x + row * linear.x_stride + at));
        } else {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            factors.values[i] = at + i < end ? LoadFloat(x + row * linear.x_stride + at + i) : 0;
          }
        }
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            sums[row][c] += factors.values[i] * numbers[c].values[i];
          }
        }
      }
    }
    k += kUnroll * step;
    if (k < end) pieces.Load(rows, k, step, end);
  }
#pragma unroll
  for (int row = 0; row < kM; ++row) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float sum = WarpSum(sums[row][c]);
      if (lane == 0) partial[warp][row * kColumns + c] = sum;
    }
  }
  __syncthreads();
  if (part != 0 || !has_column || lane >= kM || lane >= linear.m) return;
  float totals[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    totals[c] = 0;
    for (int p = 0; p < args.split; ++p) totals[c] += partial[warp + p][lane * kColumns + c];
  }
  StoreSums(out, args, lane, column, totals);
}

}  // namespace tandem
