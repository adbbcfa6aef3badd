// Attention of one query per request, bound by reading its keys and values once.
//
// A block computes all query heads of one KV head over one split of the context. Each key is read
// by a group of lanes of a warp, 16 bytes each; loads of several keys and values are in flight at
// once. Each group of lanes has running maxima and sums of its own, joined at the end: first over
// the warp, then over the block, then over the splits.

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kWarps = kAttentionThreads / kWarpSize;
constexpr int kUnroll = 4;  // keys of a lane group in flight at once

// Running softmax of one query head over the keys seen so far; each lane has kWidth of the sums.
template <int kWidth>
struct Softmax {
  float maximum;
  float total;
  float sums[kWidth];

  __device__ void Clear() {
    maximum = -INFINITY;
    total = 0;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = 0;
  }
  // Rescales the sums to a maximum that is at least as large.
  __device__ void Raise(float new_maximum) {
    // No key seen yet: exp(-inf - -inf) would be NaN.
    const float shrink = new_maximum == -INFINITY ? 1 : expf(maximum - new_maximum);
    maximum = new_maximum;
    total *= shrink;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] *= shrink;
  }
  // Joins the lanes that differ in bit `mask`.
  __device__ void Join(int mask) {
    Raise(fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, mask)));
    total += __shfl_xor_sync(kAllLanes, total, mask);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] += __shfl_xor_sync(kAllLanes, sums[i], mask);
  }
};

// kGroup: at least args.group.
template <int kGroup, int kDim, class T>
__global__ void __launch_bounds__(kAttentionThreads)
    DecodeAttentionKernel(T* out, int64_t out_stride, const T* q, int64_t q_stride,
                          const T* k_cache, const T* v_cache, AttentionArgs args) {
  WaitForPreviousKernel();
  constexpr int kWidth = Wide<T>::kSize;
  constexpr int kLanes = kDim / kWidth;  // of a key
  constexpr int kKeys = kWarpSize / kLanes;
  constexpr int kWarpKeys = kKeys * kUnroll;
  __shared__ float joined[kWarps][kGroup][kDim + 2];  // sums, maximum, total
  const CudaAttentionItem item = args.items[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int first_dim = lane % kLanes * kWidth;
  const int position = item.context_len - 1;
  const Split split = SplitOf(args, kWarpKeys, FirstKey(args, position), item.context_len);
  const int begin = split.begin, end = split.end;
  if (static_cast<int>(blockIdx.z) >= split.count) return;

  Wide<T> queries[kGroup];
  Softmax<kWidth> softmax[kGroup];
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    const int head = kv_head * args.group + (g < args.group ? g : 0);
    queries[g] = Widen<T>(LoadRaw(q + item.first_token * q_stride + head * kDim + first_dim));
    softmax[g].Clear();
  }

  for (int base = begin + warp * kWarpKeys; base < end; base += kWarps * kWarpKeys) {
    uint4 keys[kUnroll], values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int key = base + u * kKeys + lane / kLanes;
      const int there = key < end ? key : end - 1;
      const int64_t block = args.block_table[item.table_begin + there / args.block_size];
      const int64_t at =
          ((block * args.num_kv_heads + kv_head) * args.block_size + there % args.block_size) *
              kDim +
          first_dim;
      keys[u] = LoadRaw(k_cache + at);
      values[u] = LoadRaw(v_cache + at);
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      if (g >= args.group) break;
      float scores[kUnroll];
      float maximum = softmax[g].maximum;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const Wide<T> key = Widen<T>(keys[u]);
        float score = 0;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) score += queries[g].values[i] * key.values[i];
        score = WarpSum<kLanes>(score) * args.scale;
        if (args.soft_cap > 0) score = args.soft_cap * tanhf(score / args.soft_cap);
        if (args.slopes != nullptr) {
          const int distance = base + u * kKeys + lane / kLanes - position;
          score += args.slopes[kv_head * args.group + g] * static_cast<float>(distance);
        }
        scores[u] = base + u * kKeys + lane / kLanes < end ? score : -INFINITY;
        maximum = fmaxf(maximum, scores[u]);
      }
      softmax[g].Raise(maximum);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const float weight = scores[u] == -INFINITY ? 0 : expf(scores[u] - maximum);
        const Wide<T> value = Widen<T>(values[u]);
        softmax[g].total += weight;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) softmax[g].sums[i] += weight * value.values[i];
      }
    }
  }

#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
#pragma unroll
    for (int mask = kLanes; mask < kWarpSize; mask *= 2) softmax[g].Join(mask);
    if (lane >= kLanes) continue;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) joined[warp][g][first_dim + i] = softmax[g].sums[i];
    if (lane == 0) {
      joined[warp][g][kDim] = softmax[g].maximum;
      joined[warp][g][kDim + 1] = softmax[g].total;
    }
  }
  StoreJoined(out, out_stride, joined, args, item, kv_head, split.count);
}

template <int kDim, class T>
void LaunchForDim(OverlappingStream stream, dim3 grid, const Tensor& out, const Tensor& q,
                  const LayerKv& kv, const AttentionArgs& args) {
  const auto launch = [&](auto* kernel) {
    Launch(stream, grid, kAttentionThreads, kernel, static_cast<T*>(out.data), out.row_stride,
           static_cast<const T*>(q.data), q.row_stride, static_cast<const T*>(kv.k),
           static_cast<const T*>(kv.v), args);
  };
  if (args.group == 1) return launch(DecodeAttentionKernel<1, kDim, T>);
  if (args.group == 2) return launch(DecodeAttentionKernel<2, kDim, T>);
  if (args.group <= 4) return launch(DecodeAttentionKernel<4, kDim, T>);
  launch(DecodeAttentionKernel<8, kDim, T>);
}

template <class T>
bool LaunchForType(OverlappingStream stream, dim3 grid, const Tensor& out, const Tensor& q,
                   const LayerKv& kv, const AttentionArgs& args) {
  const bool is_aligned =
      q.row_stride % Wide<T>::kSize == 0 && reinterpret_cast<uintptr_t>(q.data) % 16 == 0;
  if (!is_aligned || args.group > kAttentionRows) return false;
  if (DecodesOnTensorCores(q.dtype, args.head_dim, args.group, args.block_size)) {
    LaunchTensorCoreDecode(stream, grid, out, q, kv, args);
    return true;
  }
  if (args.head_dim == 64) {
    LaunchForDim<64, T>(stream, grid, out, q, kv, args);
    return true;
  }
  if (args.head_dim == 128) {
    LaunchForDim<128, T>(stream, grid, out, q, kv, args);
    return true;
  }
  return false;
}

}  // namespace

bool LaunchDecodeAttention(OverlappingStream stream, dim3 grid, const Tensor& out, const Tensor& q,
                           const LayerKv& kv, const AttentionArgs& args) {
  return q.dtype == DType::kBf16 ? LaunchForType<Bf16>(stream, grid, out, q, kv, args)
                                 : LaunchForType<float>(stream, grid, out, q, kv, args);
}

}  // namespace tandem
