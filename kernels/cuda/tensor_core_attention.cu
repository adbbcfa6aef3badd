// Attention of many queries per request on the tensor cores, for what FlashInfer's kernels do not
// take: the heads of 72 and 80 numbers that vision towers have, queries that see keys after them,
// sinks, slopes, chunks.
//
// A block takes the kTallRows rows (query, head) that begin at its item, for one KV head, and 16 of
// them are a warp's. The block's tile of keys and values is in shared memory, from which each warp
// makes its fragments; scores become weights in the registers that the products left them in.

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kWarps = kAttentionThreads / kWarpSize;
constexpr int kWarpRows = 16;
constexpr int kTallRows = kWarps * kWarpRows;
constexpr int kTileKeys = 32;
constexpr int kKeySteps = kTileKeys / 16;  // products over the keys of a tile
constexpr int kPiece = 8;                  // numbers of a load of 16 bytes

// A tile's numbers. Rows are a piece longer than heads, so that a warp's reads meet no bank twice.
template <int kDim>
struct TileRows {
  static constexpr int kPieces = kDim / kPiece;
  uint4 pieces[kTileKeys][kPieces + 1];

  __device__ const uint16_t* Row(int key) const {
    return reinterpret_cast<const uint16_t*>(pieces[key]);
  }
  // Numbers i and i + 1 of a key.
  __device__ unsigned PairOf(int key, int i) const {
    return *reinterpret_cast<const unsigned*>(Row(key) + i);
  }
  // Number i of a key and of the next one.
  __device__ unsigned ColumnPairOf(int key, int i) const {
    return Row(key)[i] | unsigned{Row(key + 1)[i]} << 16;
  }
};

// kSteps: of 16 numbers, of which a head has at most so many.
template <int kSteps>
__global__ void __launch_bounds__(kAttentionThreads)
    TensorCoreAttentionKernel(Bf16* out, int64_t out_stride, const Bf16* q, int64_t q_stride,
                              const Bf16* k_cache, const Bf16* v_cache, AttentionArgs args) {
  WaitForPreviousKernel();
  constexpr int kDim = 16 * kSteps;
  using Rows = TileRows<kDim>;
  __shared__ Rows keys, values;
  const CudaAttentionItem item = args.items[blockIdx.x];
  if (item.first_row % kTallRows != 0) return;  // another block has them
  const int kv_head = static_cast<int>(blockIdx.y), dim = args.head_dim;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = lane / 4, column = lane % 4 * 2;
  const int num_rows = item.num_queries * args.group - item.first_row;
  const int rows_here = num_rows < kTallRows ? num_rows : kTallRows;
  const ItemRows item_rows = {args, item, kv_head};

  // The lane's two rows: `row` and `row` + 8 of its warp.
  int rows[2], positions[2], first_keys[2], last_keys[2];
  float slopes[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    rows[h] = warp * kWarpRows + row + 8 * h;
    const bool is_there = rows[h] < rows_here;
    positions[h] = is_there ? item_rows.PositionOf(rows[h]) : 0;
    first_keys[h] = is_there ? FirstKey(args, positions[h]) : 0;
    last_keys[h] = is_there ? item_rows.LastKeyOf(rows[h]) : -1;
    slopes[h] = is_there && args.slopes != nullptr ? args.slopes[item_rows.HeadOf(rows[h])] : 0;
  }
  unsigned queries[kSteps][4];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int h = i % 2, at = 16 * s + column + i / 2 * 8;
      queries[s][i] =
          rows[h] < rows_here && at < dim
              ? *reinterpret_cast<const unsigned*>(q + item_rows.At(rows[h], q_stride) + at)
              : 0;
    }
  }

  const int begin = FirstKey(args, item_rows.PositionOf(0)) / kTileKeys * kTileKeys;
  const int end = item_rows.LastKeyOf(rows_here - 1) + 1;
  float maxima[2] = {-INFINITY, -INFINITY}, totals[2] = {};
  float sums[2 * kSteps][4] = {};  // of numbers 8 n + column + {0, 1}: row, then row + 8
  for (int tile = begin; tile < end; tile += kTileKeys) {
    __syncthreads();  // all warps are done with the previous tile
    for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * Rows::kPieces;
         i += kAttentionThreads) {
      const int at = i / Rows::kPieces, piece = i % Rows::kPieces, key = tile + at;
      uint4 k = {0, 0, 0, 0}, v = {0, 0, 0, 0};
      if (key < end && piece * kPiece < dim) {
        const int64_t block = args.block_table[item.table_begin + key / args.block_size];
        const int64_t place =
            ((block * args.num_kv_heads + kv_head) * args.block_size + key % args.block_size) *
                dim +
            piece * kPiece;
        k = LoadRaw(k_cache + place);
        v = LoadRaw(v_cache + place);
      }
      keys.pieces[at][piece] = k;
      values.pieces[at][piece] = v;
    }
    __syncthreads();
    if (warp * kWarpRows >= rows_here) continue;

    float scores[2 * kKeySteps][4] = {};  // of keys 8 n + column + {0, 1}: row, then row + 8
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int n = 0; n < 2 * kKeySteps; ++n) {
        const int at = 16 * s + column;
        MultiplyFragments(scores[n], queries[s],
                          {keys.PairOf(8 * n + row, at), keys.PairOf(8 * n + row, at + 8)});
      }
    }
    float shrinks[2], tile_maxima[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < 2 * kKeySteps; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int h = i / 2, key = tile + 8 * n + column + i % 2;
        float score = scores[n][i] * args.scale;
        if (args.soft_cap > 0) score = args.soft_cap * tanhf(score / args.soft_cap);
        score += slopes[h] * static_cast<float>(key - positions[h]);
        scores[n][i] = key >= first_keys[h] && key <= last_keys[h] ? score : -INFINITY;
        tile_maxima[h] = fmaxf(tile_maxima[h], scores[n][i]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float maximum = fmaxf(maxima[h], WarpMax<4>(tile_maxima[h]));
      // No key seen yet: exp(-inf - -inf) would be NaN.
      shrinks[h] = maximum == -INFINITY ? 1 : expf(maxima[h] - maximum);
      maxima[h] = maximum;
      totals[h] *= shrinks[h];
    }
#pragma unroll
    for (int n = 0; n < 2 * kKeySteps; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& weight = scores[n][i];
        weight = weight == -INFINITY ? 0 : expf(weight - maxima[i / 2]);
        totals[i / 2] += weight;
      }
    }
#pragma unroll
    for (int n = 0; n < 2 * kSteps; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] *= shrinks[i / 2];
    }
#pragma unroll
    for (int s = 0; s < kKeySteps; ++s) {
      const float(&low)[4] = scores[2 * s], (&high)[4] = scores[2 * s + 1];
      const unsigned weights[] = {PackPair(low[0], low[1]), PackPair(low[2], low[3]),
                                  PackPair(high[0], high[1]), PackPair(high[2], high[3])};
#pragma unroll
      for (int n = 0; n < 2 * kSteps; ++n) {
        const int key = 16 * s + column, at = 8 * n + row;
        MultiplyFragments(sums[n], weights,
                          {values.ColumnPairOf(key, at), values.ColumnPairOf(key + 8, at)});
      }
    }
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float total = WarpSum<4>(totals[h]);
    if (rows[h] >= rows_here) continue;
    const float inverse = 1 / (total + SinkOf(args, item_rows.HeadOf(rows[h]), maxima[h]));
    Bf16* to = out + item_rows.At(rows[h], out_stride);
#pragma unroll
    for (int n = 0; n < 2 * kSteps; ++n) {
      const int at = 8 * n + column;
      if (at >= dim) break;
      *reinterpret_cast<unsigned*>(to + at) =
          PackPair(sums[n][2 * h] * inverse, sums[n][2 * h + 1] * inverse);
    }
  }
}

}  // namespace

bool LaunchTensorCoreAttention(OverlappingStream stream, int64_t num_items, const Tensor& out,
                               const Tensor& q, const LayerKv& kv, const AttentionArgs& args) {
  const bool is_aligned = q.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(q.data) % 4 == 0 &&
                          out.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(out.data) % 4 == 0;
  if (out.dtype != DType::kBf16 || kv.head_dim % kPiece != 0 || !is_aligned) return false;
  const dim3 grid(static_cast<unsigned>(num_items), static_cast<unsigned>(kv.num_kv_heads));
  const auto launch = [&](auto* kernel) {
    Launch(stream, grid, kAttentionThreads, kernel, out.Data<Bf16>(), out.row_stride,
           static_cast<const Bf16*>(q.data), q.row_stride, static_cast<const Bf16*>(kv.k),
           static_cast<const Bf16*>(kv.v), args);
    return true;
  };
  if (kv.head_dim <= 64) return launch(TensorCoreAttentionKernel<4>);
  if (kv.head_dim <= 80) return launch(TensorCoreAttentionKernel<5>);
  if (kv.head_dim <= 128) return launch(TensorCoreAttentionKernel<8>);
  return false;
}

}  // namespace tandem
