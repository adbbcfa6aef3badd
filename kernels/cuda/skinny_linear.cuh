#pragma once

// Products of few rows by plain multiplications. Device code, for all threads of a block of
// kSkinnyThreads; block x of the grid computes as many columns as its warps do.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/norm_row.cuh"

namespace tandem {

// The most rows of which the kernel keeps each number of x in registers, as often as it is used.
inline constexpr int kPlainRows = 4;
inline constexpr int kNormedBytes = 32 << 10;  // of normalised rows of x in a block

// Least depth for a warp that shares a column: two loads for each lane.
template <class T>
constexpr int64_t LeastDepth() {
  return 2 * kWarpSize * Wide<T>::kSize;
}

// Blocks that a multiprocessor runs at once, and of those with a norm.
inline constexpr int kSkinnyBlocks = 3, kNormedBlocks = 2;

// Warps per column: no more than run at once.
inline int ChooseSkinnySplit(int64_t num_columns, int64_t k, int64_t least_depth,
                             int64_t num_multiprocessors) {
  const int64_t most = kSkinnyBlocks * kSkinnyWarps * num_multiprocessors;
  int split = 1;
  while (split < kSkinnyWarps && 2 * split * num_columns <= most && k >= 2 * split * least_depth) {
    split *= 2;
  }
  return split;
}

// A lane's loads in flight: kUnroll pieces of 16 bytes of each of its warp's weight rows. Each is
// replaced by the load that is kUnroll pieces further on as soon as it has been used, so that as
// many are always on the way.
template <int kUnroll, int kColumns, class T>
struct WeightPieces {
  const T* rows[kColumns];
  uint4 raw[kUnroll][kColumns];

  __device__ void Load(int u, int64_t k, int64_t end) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      raw[u][c] = uint4{0, 0, 0, 0};
      if (k < end) raw[u][c] = LoadStreamed(rows[c] + k);
    }
  }
};

// One warp, or `split` of them, per output column and kM rows: lanes read the weight's row 16 bytes
// at a time, several loads in flight at once, and every row of x uses them. kGated: a warp has the
// rows of the gate and of the column it multiplies. kNormed: each block normalises x for itself
// while its first weights are in flight, and computes columns in several rounds, so that few blocks
// do so. kWide: rows of x are as aligned as the weight's. kWaits: waits for the previous kernel
// once the first weights are in flight.
template <int kM, bool kGated, bool kNormed, bool kWide, bool kWaits, class Out, class X, class T>
__device__ inline void MultiplySkinnyRows(Out* out, const X* x, const T* weight,
                                          const SkinnyArgs& args) {
  constexpr int kWidth = Wide<T>::kSize;
  constexpr int kColumns = kGated ? 2 : 1;
  constexpr int kUnroll = kM > kPlainRows ? 2 : 8 / kColumns;
  __shared__ uint4 normed_memory[kNormed ? kNormedBytes / sizeof(uint4) : 1];
  __shared__ float partial[kSkinnyWarps][kM * kColumns];
  const LinearArgs& linear = args.linear;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int part = warp % args.split;
  const int64_t num_columns = kGated ? linear.n / 2 : linear.n;
  const int64_t block_columns = kSkinnyWarps / args.split;
  const int64_t step = int64_t{args.split} * kWarpSize * kWidth;
  const int64_t first = (int64_t{part} * kWarpSize + lane) * kWidth;
  int64_t column = int64_t{blockIdx.x} * block_columns + warp / args.split;
  WeightPieces<kUnroll, kColumns, T> pieces;
  const auto begin_column = [&] {  // rows of the weight are padded with zeros
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      pieces.rows[c] = weight + (column + c * num_columns) * linear.weight_stride;
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      pieces.Load(u, first + u * step, column < num_columns ? linear.k : 0);
    }
  };
  begin_column();

  [[maybe_unused]] const int64_t normed_stride = (linear.k + kWidth - 1) / kWidth * kWidth;
  [[maybe_unused]] T* normed = reinterpret_cast<T*>(normed_memory);
  if constexpr (kNormed) {
    const RowNorm<kSkinnyThreads> norm(args.norm_weight, linear.k);
    if constexpr (kWaits) WaitForPreviousKernel();
    for (int row = 0; row < kM; ++row) {
      if (row >= linear.m) break;
      T* to = normed + row * normed_stride;
      norm.Apply(to, x + row * linear.x_stride, args.epsilon);
      const int64_t h = linear.k + threadIdx.x;
      if (h < normed_stride) StoreFloat(to + h, 0);
    }
    __syncthreads();
  } else if constexpr (kWaits) {
    WaitForPreviousKernel();
  }

  for (;;) {
    float sums[kM][kColumns] = {};
    const int64_t end = column < num_columns ? linear.k : 0;
    for (int64_t k = first; k < end; k += kUnroll * step) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t at = k + u * step;
        Wide<T> numbers[kColumns];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) numbers[c] = Widen<T>(pieces.raw[u][c]);
        pieces.Load(u, at + kUnroll * step, end);
#pragma unroll
        for (int row = 0; row < kM; ++row) {
          // Few rows are read as kM, so that no branch keeps one load from following another.
          if (kM > kPlainRows && row >= linear.m) break;
          const int64_t its_row = row < linear.m ? row : 0;
          Wide<T> factors = {};
          if constexpr (kNormed) {
            if (at < end) factors = Widen<T>(LoadRaw(normed + its_row * normed_stride + at));
          } else if constexpr (kWide) {
            if (at < end) factors = Widen<T>(LoadRaw(x + its_row * linear.x_stride + at));
          } else {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
              if (at + i < end) {
                factors.values[i] = LoadFloat(x + its_row * linear.x_stride + at + i);
              }
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
    }
    const int64_t done = column;
    [[maybe_unused]] bool is_last = true;
    if constexpr (kNormed) {
      column += gridDim.x * block_columns;
      is_last = column - warp / args.split >= num_columns;
      if (!is_last) begin_column();  // on the way while the sums are joined
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
    if (part == 0 && done < num_columns && lane < kM && lane < linear.m) {
      float totals[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        totals[c] = 0;
        for (int p = 0; p < args.split; ++p) totals[c] += partial[warp + p][lane * kColumns + c];
      }
      StoreSums(out, args, lane, done, totals);
    }
    if (is_last) return;
    __syncthreads();  // the partial sums have been read
  }
}

}  // namespace tandem
