#pragma once

// The kernel of ops whose state is matrices [rows, columns]: a block keeps kTileColumns columns of
// one of a request's matrices in registers while its tokens run, reads them once and writes them
// once for each block of the cache that has tokens. Each token is a pass over the tile with one sum
// over the rows. Columns are independent of each other, so nothing is shared between blocks.
//
// A Rule is what a token does to the tile; its member
//   template <int kRows> Step(StateTile<kRows>* tile, int64_t matrix, int64_t token, int turn)
// is called by all threads, with turn = 0, 1, ... in the order of the tokens. Memory that is
// shared for a token has two halves, for even and odd turns: when a token writes its half, all
// threads are past the token before the last, as each token waits for the whole block.
// Device code.

#include "kernels/backend.h"
#include "kernels/cuda/any_rows.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/state_runs.cuh"

namespace tandem {

inline constexpr int kTileThreads = 128;
inline constexpr int kTileWarps = kTileThreads / kWarpSize;
inline constexpr int kTileColumns = 32;
inline constexpr int kThreadColumns = 4;  // of a thread, 16 bytes
inline constexpr int kColumnThreads = kTileColumns / kThreadColumns;
inline constexpr int kTileGroups = kTileThreads / kColumnThreads;  // threads of a column

struct StateMatrices {
  int64_t rows, columns;
};

// Row i of a thread is row i * kTileGroups + its group.
template <int kRows>
struct StateTile {
  static constexpr int kMaxRows = kRows * kTileGroups;
  int64_t num_rows, num_columns;  // of the matrix
  int64_t first_column;           // of the thread
  int group;
  float values[kRows][kThreadColumns];

  __device__ int Row(int i) const { return i * kTileGroups + group; }
  __device__ bool HasColumn(int c) const { return first_column + c < num_columns; }
  // kIsWide: all matrices begin at 16 bytes, and the thread's columns are all there or none is.
  template <bool kIsWide>
  __device__ void Load(const float* matrix) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const bool is_there = matrix != nullptr && Row(i) < num_rows;
      const float* from = is_there ? matrix + Row(i) * num_columns + first_column : nullptr;
      if (kIsWide) {
        float4 four = {0, 0, 0, 0};
        if (is_there && HasColumn(0)) four = *reinterpret_cast<const float4*>(from);
        values[i][0] = four.x;
        values[i][1] = four.y;
        values[i][2] = four.z;
        values[i][3] = four.w;
      } else {
#pragma unroll
        for (int c = 0; c < kThreadColumns; ++c) {
          values[i][c] = is_there && HasColumn(c) ? from[c] : 0;
        }
      }
    }
  }
  template <bool kIsWide>
  __device__ void Store(float* matrix) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (Row(i) >= num_rows) break;
      float* to = matrix + Row(i) * num_columns + first_column;
      if (kIsWide) {
        const float4 four = {values[i][0], values[i][1], values[i][2], values[i][3]};
        if (HasColumn(0)) *reinterpret_cast<float4*>(to) = four;
      } else {
#pragma unroll
        for (int c = 0; c < kThreadColumns; ++c) {
          if (HasColumn(c)) to[c] = values[i][c];
        }
      }
    }
  }
};

// Sums of the columns over the rows of all threads; waits for the whole block.
template <int kNum>
__device__ inline void SumRows(float (&sums)[kNum][kThreadColumns], int turn) {
  __shared__ float shared[2][kTileWarps][kColumnThreads][kNum * kThreadColumns];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int place = static_cast<int>(threadIdx.x) % kColumnThreads;
#pragma unroll
  for (int n = 0; n < kNum; ++n) {
#pragma unroll
    for (int c = 0; c < kThreadColumns; ++c) {
#pragma unroll
      for (int mask = kColumnThreads; mask < kWarpSize; mask *= 2) {
        sums[n][c] += __shfl_xor_sync(kAllLanes, sums[n][c], mask);
      }
      if (threadIdx.x % kWarpSize < kColumnThreads) {
        shared[turn % 2][warp][place][n * kThreadColumns + c] = sums[n][c];
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kNum; ++n) {
#pragma unroll
    for (int c = 0; c < kThreadColumns; ++c) {
      sums[n][c] = 0;
#pragma unroll
      for (int w = 0; w < kTileWarps; ++w) {
        sums[n][c] += shared[turn % 2][w][place][n * kThreadColumns + c];
      }
    }
  }
}

__device__ inline float Softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

template <class Rule, int kRows, bool kIsWide>
__global__ void __launch_bounds__(kTileThreads)
    StateTileKernel(Rule rule, StateMatrices matrices, StateArgs states) {
  WaitForPreviousKernel();
  const int64_t matrix = blockIdx.y;
  const int64_t offset = matrix * matrices.rows * matrices.columns;
  StateTile<kRows> tile;
  tile.num_rows = matrices.rows;
  tile.num_columns = matrices.columns;
  tile.first_column =
      int64_t{blockIdx.z} * kTileColumns + threadIdx.x % kColumnThreads * kThreadColumns;
  tile.group = static_cast<int>(threadIdx.x) / kColumnThreads;
  int turn = 0;
  ForEachRun(states, [&](const CudaStateRun& run) {
    const int first = run.first_position;
    tile.template Load<kIsWide>(first == 0 ? nullptr : states.At(run, first - 1) + offset);
    for (int i = 0; i < run.num_tokens; ++i, ++turn) {
      rule.Step(&tile, matrix, run.first_token + i, turn);
      if (!states.IsKept(run, i)) continue;
      tile.template Store<kIsWide>(states.At(run, first + i) + offset);
    }
  });
}

// Runs the rule over the states of all requests.
template <class Rule>
void LaunchStateTiles(OverlappingStream stream, const Rule& rule, const StateMatrices& matrices,
                      int64_t num_matrices, const StatePart& state, const CudaAttentionPlan& plan) {
  CHECK_LE(matrices.rows, kMaxCudaStateRows);
  const StateArgs states = StateArgsOf(state, plan);
  const bool is_wide = matrices.columns % kThreadColumns == 0 &&
                       states.stride % kThreadColumns == 0 &&
                       reinterpret_cast<uintptr_t>(states.states) % 16 == 0;
  const dim3 grid(static_cast<unsigned>(plan.num_state_runs), static_cast<unsigned>(num_matrices),
                  static_cast<unsigned>((matrices.columns + kTileColumns - 1) / kTileColumns));
  const auto launch = [&](auto* kernel) {
    Launch(stream, grid, kTileThreads, kernel, rule, matrices, states);
  };
  if (!is_wide) return launch(StateTileKernel<Rule, 16, false>);
  if (matrices.rows <= 1 * kTileGroups) return launch(StateTileKernel<Rule, 1, true>);
  if (matrices.rows <= 4 * kTileGroups) return launch(StateTileKernel<Rule, 4, true>);
  if (matrices.rows <= 8 * kTileGroups) return launch(StateTileKernel<Rule, 8, true>);
  launch(StateTileKernel<Rule, 16, true>);
}

}  // namespace tandem
