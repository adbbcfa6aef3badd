// Matrix products of 5 to 16 rows, on the tensor cores. They are bound by reading the weights once,
// as those of fewer rows are, but multiplying number by number would not keep up with that.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.cuh"

namespace tandem {
namespace {

constexpr int kColumns = 16;  // of a warp: rows of the weight
constexpr int kTileRows = 8;  // of x
constexpr int kDepth = 32;    // of a step: 16 bytes of each of 4 lanes

// A warp multiplies kColumns rows of the weight (kGated: of the gate, and as many of what it
// multiplies) by all rows of x; `split` warps share the depth. In a fragment, lane l holds the
// numbers of row l / 4 at places 2 (l % 4) + {0, 1, 8, 9}. Which k stands at a place does not
// matter as long as weight and x agree, so that the 16 bytes a lane reads of a row, k = 8 (l % 4)
// and the next seven, are its part of two fragments.
template <int kTiles, bool kGated, class Out>
__global__ void __launch_bounds__(kSkinnyThreads)
    TensorCoreKernel(Out* out, const Bf16* x, const Bf16* weight, SkinnyArgs args) {
  constexpr int kMatrices = kGated ? 2 : 1;
  constexpr int kUnroll = kGated ? 2 : 4;
  __shared__ float partial[kSkinnyWarps][kMatrices][kTiles * kTileRows][kColumns];
  const LinearArgs& linear = args.linear;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int part = warp % args.split;
  const int row = lane / 4, piece = lane % 4;
  const int64_t num_columns = kGated ? linear.n / 2 : linear.n;
  const int64_t first_column =
      (int64_t{blockIdx.x} * (kSkinnyWarps / args.split) + warp / args.split) * kColumns;
  // Columns and rows that are not there are read as others that are, and not stored.
  const Bf16* columns[kMatrices][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t column = first_column + row + half * (kColumns / 2);
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

  const int64_t step = int64_t{args.split} * kDepth;
  uint4 numbers[kUnroll][kMatrices][2];
  const auto load = [&](int64_t base) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = base + u * step + piece * 8;
#pragma unroll
      for (int matrix = 0; matrix < kMatrices; ++matrix) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          numbers[u][matrix][half] =
              at < linear.k ? LoadRaw(columns[matrix][half] + at) : uint4{0, 0, 0, 0};
        }
      }
    }
  };
  int64_t base = int64_t{part} * kDepth;
  load(base);
  WaitForKernelAhead();
  float sums[kMatrices][kTiles][4];
#pragma unroll
  for (int matrix = 0; matrix < kMatrices; ++matrix) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (float& sum : sums[matrix][tile]) sum = 0;
    }
  }
  while (base < linear.k) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = base + u * step + piece * 8;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 factors = at < linear.k ? LoadRaw(rows[tile] + at) : uint4{0, 0, 0, 0};
#pragma unroll
        for (int matrix = 0; matrix < kMatrices; ++matrix) {
          const uint4 low = numbers[u][matrix][0], high = numbers[u][matrix][1];
          float(&tile_sums)[4] = sums[matrix][tile];
          MultiplyFragments(tile_sums, {low.x, high.x, low.y, high.y}, {factors.x, factors.y});
          MultiplyFragments(tile_sums, {low.z, high.z, low.w, high.w}, {factors.z, factors.w});
        }
      }
    }
    base += kUnroll * step;
    if (base < linear.k) load(base);
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
  const int num_sums = static_cast<int>(linear.m) * kColumns;
  for (int i = part * kWarpSize + lane; i < num_sums; i += args.split * kWarpSize) {
    const int64_t column = first_column + i % kColumns;
    if (column >= num_columns) continue;
    float totals[kMatrices];
#pragma unroll
    for (int matrix = 0; matrix < kMatrices; ++matrix) {
      totals[matrix] = 0;
      for (int p = 0; p < args.split; ++p) {
        totals[matrix] += partial[first_warp + p][matrix][i / kColumns][i % kColumns];
      }
    }
    StoreSums(out, args, i / kColumns, column, totals);
  }
}

template <int kTiles, bool kGated, class Out>
void LaunchTiles(OverlappingStream stream, Out* out, const Bf16* x, const Bf16* weight,
                 SkinnyArgs args, int64_t num_multiprocessors) {
  const int64_t num_columns = kGated ? args.linear.n / 2 : args.linear.n;
  const int64_t num_warps = (num_columns + kColumns - 1) / kColumns;
  args.split = ChooseSplit(num_warps, args.linear.k, 2 * kDepth, num_multiprocessors);
  const int64_t warps_per_block = kSkinnyWarps / args.split;
  Launch(stream, static_cast<unsigned>((num_warps + warps_per_block - 1) / warps_per_block),
         kSkinnyThreads, TensorCoreKernel<kTiles, kGated, Out>, out, x, weight, args);
}

}  // namespace

template <class Out>
bool LaunchTensorCores(OverlappingStream stream, Out* out, const Bf16* x, const Bf16* weight,
                       bool is_gated, SkinnyArgs args, int64_t num_multiprocessors) {
  constexpr int64_t kWidth = Wide<Bf16>::kSize;
  const bool is_aligned = args.linear.k % kWidth == 0 && args.linear.x_stride % kWidth == 0 &&
                          reinterpret_cast<uintptr_t>(x) % 16 == 0;
  if (!is_aligned || args.linear.m > 2 * kTileRows) return false;
  const auto launch = [&](auto* function) {
    function(stream, out, x, weight, args, num_multiprocessors);
    return true;
  };
  if (args.linear.m <= kTileRows) {
    return launch(is_gated ? LaunchTiles<1, true, Out> : LaunchTiles<1, false, Out>);
  }
  return launch(is_gated ? LaunchTiles<2, true, Out> : LaunchTiles<2, false, Out>);
}

template bool LaunchTensorCores(OverlappingStream, float*, const Bf16*, const Bf16*, bool,
                                SkinnyArgs, int64_t);
template bool LaunchTensorCores(OverlappingStream, Bf16*, const Bf16*, const Bf16*, bool,
                                SkinnyArgs, int64_t);

}  // namespace tandem
