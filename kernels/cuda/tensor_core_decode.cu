// Attention of one query per request on the tensor cores: up to 8 query heads share a KV head, so
// plain multiplications would not keep up with reading the cache.
//
// A block computes all query heads of one KV head over one split of the context. Each of its warps
// takes tiles of 16 keys in turn and reads them straight into the fragments of its products: the
// next tile's keys are on the way as soon as the scores are there, its values as soon as the sums
// are. A warp has a running maximum and sums of its own, joined at the end as in
// decode_attention.cu.

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kTileKeys = 16;
constexpr int kHeads = kAttentionRows;  // of a product, some of them unused
constexpr int kWarps = kAttentionThreads / kWarpSize;
constexpr int kBlocksAtOnce = 3;  // of a multiprocessor

// A warp's part of a tile. Lane l, with r = l / 4 and c = l % 4, has of keys r and r + 8 the pieces
// of 8 numbers c, c + 4, ..., and of the values at 2 c + {0, 1, 8, 9} the pieces r, r + 8, ...
template <int kDim>
struct Tile {
  static constexpr int kSteps = kDim / 32;
  static constexpr int kPieces = kDim / 64;
  uint4 keys[kSteps][2];
  uint4 values[4][kPieces];

  __device__ void LoadKeys(const Bf16* from, int row, int piece) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        keys[s][half] = LoadStreamed(from + (row + 8 * half) * kDim + (4 * s + piece) * 8);
      }
    }
  }
  // Of keys from `first` up to before `end`: a place that no token has may hold anything.
  __device__ void LoadValues(const Bf16* from, int row, int piece, int first, int end) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 2 * piece + i % 2 + i / 2 * 8;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        values[i][p] = uint4{0, 0, 0, 0};
        if (key >= first && key < end) {
          values[i][p] = LoadStreamed(from + key * kDim + (8 * p + row) * 8);
        }
      }
    }
  }
  // Number n of the lane's pieces, of the values at slots i and i + 1.
  __device__ unsigned PairOf(int i, int n) const {
    const unsigned first = WordOf(values[i][n / 8], n % 8 / 2);
    const unsigned second = WordOf(values[i + 1][n / 8], n % 8 / 2);
    return n % 2 == 0 ? (first & 0xffff) | second << 16 : first >> 16 | (second & 0xffff0000);
  }
};

template <int kDim>
__global__ void __launch_bounds__(kAttentionThreads, kBlocksAtOnce)
    TensorCoreDecodeKernel(Bf16* out, int64_t out_stride, const Bf16* q, int64_t q_stride,
                           const Bf16* k_cache, const Bf16* v_cache, AttentionArgs args) {
  WaitForPreviousKernel();
  constexpr int kSteps = Tile<kDim>::kSteps;
  constexpr int kProducts = kDim / 16;                // each of 16 numbers of the values
  __shared__ float joined[kWarps][kHeads][kDim + 2];  // sums, maximum, total
  const CudaAttentionItem item = args.items[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = lane / 4, piece = lane % 4;
  const int position = item.context_len - 1;
  const Split split = SplitOf(args, kTileKeys, FirstKey(args, position), item.context_len);
  const int begin = split.begin, end = split.end;
  if (static_cast<int>(blockIdx.z) >= split.count) return;

  const auto head_of = [&](int h) { return kv_head * args.group + (h < args.group ? h : 0); };
  const auto block_of = [&](int tile) {
    return tile * kTileKeys < end
               ? args.block_table[item.table_begin + tile * kTileKeys / args.block_size]
               : 0;
  };
  const auto place_of = [&](int tile, int block) {
    return ((int64_t{block} * args.num_kv_heads + kv_head) * args.block_size +
            tile * kTileKeys % args.block_size) *
           kDim;
  };
  Tile<kDim> numbers;
  const auto load_keys = [&](int tile, int block) {
    numbers.LoadKeys(k_cache + place_of(tile, block), row, piece);
  };
  const auto load_values = [&](int tile, int block) {
    const int first = tile * kTileKeys;
    numbers.LoadValues(v_cache + place_of(tile, block), row, piece, begin - first, end - first);
  };
  int tile = begin / kTileKeys + warp;
  const int first_block = block_of(tile);
  int next_block = block_of(tile + kWarps);
  if (tile * kTileKeys < end) {
    load_keys(tile, first_block);
    load_values(tile, first_block);
  }
  uint4 queries[kSteps];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    queries[s] = LoadRaw(q + item.first_token * q_stride + int64_t{head_of(row)} * kDim +
                         (4 * s + piece) * 8);
  }

  // Of heads 2 piece and 2 piece + 1: maxima, totals of the lane's keys, sums of the values.
  float maxima[2] = {-INFINITY, -INFINITY}, totals[2] = {};
  float sums[kProducts][4] = {};
  for (; tile * kTileKeys < end; tile += kWarps) {
    float scores[4] = {};  // of key row and row + 8: head 2 piece, head 2 piece + 1
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const uint4 low = numbers.keys[s][0], high = numbers.keys[s][1];
      MultiplyFragments(scores, {low.x, high.x, low.y, high.y}, {queries[s].x, queries[s].y});
      MultiplyFragments(scores, {low.z, high.z, low.w, high.w}, {queries[s].z, queries[s].w});
    }
    const bool has_next = (tile + kWarps) * kTileKeys < end;
    if (has_next) load_keys(tile + kWarps, next_block);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = tile * kTileKeys + row + i / 2 * 8;
      float score = scores[i] * args.scale;
      if (args.soft_cap > 0) score = args.soft_cap * tanhf(score / args.soft_cap);
      if (args.slopes != nullptr) {
        score += args.slopes[head_of(2 * piece + i % 2)] * static_cast<float>(key - position);
      }
      scores[i] = key >= begin && key < end ? score : -INFINITY;
    }
    float shrinks[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float maximum = fmaxf(maxima[h], fmaxf(scores[h], scores[h + 2]));
#pragma unroll
      for (int mask = 4; mask < kWarpSize; mask *= 2) {
        maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, mask));
      }
      // No key seen yet: exp(-inf - -inf) would be NaN.
      shrinks[h] = maximum == -INFINITY ? 1 : expf(maxima[h] - maximum);
      maxima[h] = maximum;
      totals[h] *= shrinks[h];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = scores[i] == -INFINITY ? 0 : expf(scores[i] - maxima[i % 2]);
      totals[i % 2] += scores[i];
    }
    const unsigned weights[] = {TransposePairs(PackPair(scores[0], scores[1])),
                                TransposePairs(PackPair(scores[2], scores[3]))};
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[p][i] *= shrinks[i % 2];
      MultiplyFragments(sums[p],
                        {numbers.PairOf(0, p), numbers.PairOf(0, p + kProducts),
                         numbers.PairOf(2, p), numbers.PairOf(2, p + kProducts)},
                        weights);
    }
    if (has_next) load_values(tile + kWarps, next_block);
    next_block = block_of(tile + 2 * kWarps);
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int mask = 4; mask < kWarpSize; mask *= 2) {
      totals[h] += __shfl_xor_sync(kAllLanes, totals[h], mask);
    }
    float(&to)[kDim + 2] = joined[warp][2 * piece + h];
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int n = p + half * kProducts;
        to[n / 8 * 64 + row * 8 + n % 8] = sums[p][2 * half + h];
      }
    }
    if (row == 0) {
      to[kDim] = maxima[h];
      to[kDim + 1] = totals[h];
    }
  }
  StoreJoined(out, out_stride, joined, args, item, kv_head, split.count);
}

}  // namespace

bool DecodesOnTensorCores(DType dtype, int head_dim, int group, int block_size) {
  return dtype == DType::kBf16 && (head_dim == 64 || head_dim == 128) && group <= kHeads &&
         block_size % kTileKeys == 0;
}

void LaunchTensorCoreDecode(OverlappingStream stream, dim3 grid, const Tensor& out, const Tensor& q,
                            const LayerKv& kv, const AttentionArgs& args) {
  const auto launch = [&](auto* kernel) {
    Launch(stream, grid, kAttentionThreads, kernel, out.Data<Bf16>(), out.row_stride,
           static_cast<const Bf16*>(q.data), q.row_stride, static_cast<const Bf16*>(kv.k),
           static_cast<const Bf16*>(kv.v), args);
  };
  args.head_dim == 64 ? launch(TensorCoreDecodeKernel<64>) : launch(TensorCoreDecodeKernel<128>);
}

}  // namespace tandem
