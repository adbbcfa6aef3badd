#pragma once

// Products of few rows on the tensor cores. Device code, for all threads of a block of
// kSkinnyThreads; block x of the grid computes as many columns as its warps do.

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/linear.cuh"

namespace tandem {

inline constexpr int kTileColumns = 16;  // of a warp: rows of the weight
inline constexpr int kTileRows = 8;      // of x
inline constexpr int kTileDepth = 32;    // of a step: 16 bytes of each of 4 lanes

// A warp's partial sums, for the warps that share its columns.
template <int kTiles, bool kGated>
using TileSums = float[kGated ? 2 : 1][kTiles * kTileRows][kTileColumns];

// A warp multiplies kTileColumns rows of the weight (kGated: of the gate, and as many of the
// columns it multiplies) by all rows of x; `split` warps share the depth. In a fragment, lane l
// holds the numbers of row l / 4 at places 2 (l % 4) + {0, 1, 8, 9}. Any k may be at a place as
// long as weight and x agree, so the 16 bytes that a lane reads of a row, k = 8 (l % 4) and the
// next seven, are its part of two fragments. kWaits: waits for the previous kernel once the first
// weights are in flight.
template <int kTiles, bool kGated, bool kWaits, class Out>
__device__ inline void MultiplyTiles(Out* out, const Bf16* x, const Bf16* weight,
                                     const SkinnyArgs& args, TileSums<kTiles, kGated>* partial) {
  constexpr int kMatrices = kGated ? 2 : 1;
  constexpr int kUnroll = kGated ? 2 : 4;
  const LinearArgs& linear = args.linear;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int part = warp % args.split;
  const int row = lane / 4, piece = lane % 4;
  const int64_t num_columns = kGated ? linear.n / 2 : linear.n;
  const int64_t first_column =
      (int64_t{blockIdx.x} * (kSkinnyWarps / args.split) + warp / args.split) * kTileColumns;
  // Columns and rows beyond the end read the first one instead, and are not stored.
  const Bf16* columns[kMatrices][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t column = first_column + row + half * (kTileColumns / 2);
#pragma unroll
    for (int matrix = 0; matrix < kMatrices; ++matrix) {
      columns[matrix][half] =
          weight +
          ((column < num_columns ? column : 0) + matrix * num_columns) * linear.weight_stride;
    }
  }
  const Bf16* rows[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int x_row = tile * kTileRows + row;
    rows[tile] = x + (x_row < linear.m ? x_row : 0) * linear.x_stride;
  }

  const int64_t step = int64_t{args.split} * kTileDepth;
  // Each load is replaced by the one kUnroll steps further on as soon as it has been used.
  uint4 numbers[kUnroll][kMatrices][2];
  const auto load = [&](int u, int64_t at) {
#pragma unroll
    for (int matrix = 0; matrix < kMatrices; ++matrix) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint4& raw = numbers[u][matrix][half];
        raw = uint4{0, 0, 0, 0};
        if (at < linear.k) raw = LoadStreamed(columns[matrix][half] + at);
      }
    }
  };
  int64_t base = int64_t{part} * kTileDepth + piece * 8;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) load(u, base + u * step);
  if constexpr (kWaits) WaitForPreviousKernel();
  float sums[kMatrices][kTiles][4];
#pragma unroll
  for (int matrix = 0; matrix < kMatrices; ++matrix) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (float& sum : sums[matrix][tile]) sum = 0;
    }
  }
  // A warp's lanes multiply together, so all go on while the first of them has something to read.
  for (; base - piece * 8 < linear.k; base += kUnroll * step) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = base + u * step;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        uint4 factors = {0, 0, 0, 0};
        if (at < linear.k) factors = LoadRaw(rows[tile] + at);
#pragma unroll
        for (int matrix = 0; matrix < kMatrices; ++matrix) {
          const uint4 low = numbers[u][matrix][0], high = numbers[u][matrix][1];
          float(&tile_sums)[4] = sums[matrix][tile];
          MultiplyFragments(tile_sums, {low.x, high.x, low.y, high.y}, {factors.x, factors.y});
          MultiplyFragments(tile_sums, {low.z, high.z, low.w, high.w}, {factors.z, factors.w});
        }
      }
      load(u, at + kUnroll * step);
    }
  }

#pragma unroll
  for (int matrix = 0; matrix < kMatrices; ++matrix) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        partial[warp][matrix][tile * kTileRows + 2 * piece + i % 2][row + i / 2 * 8] =
            sums[matrix][tile][i];
      }
    }
  }
  __syncthreads();
  const int first_warp = warp - part;
  const int num_sums = static_cast<int>(linear.m) * kTileColumns;
  for (int i = part * kWarpSize + lane; i < num_sums; i += args.split * kWarpSize) {
    const int64_t column = first_column + i % kTileColumns;
    if (column >= num_columns) continue;
    float totals[kMatrices];
#pragma unroll
    for (int matrix = 0; matrix < kMatrices; ++matrix) {
      totals[matrix] = 0;
      for (int p = 0; p < args.split; ++p) {
        totals[matrix] += partial[first_warp + p][matrix][i / kTileColumns][i % kTileColumns];
      }
    }
    StoreSums(out, args, i / kTileColumns, column, totals);
  }
}

}  // namespace tandem
