#pragma once

// Shared by the attention kernels: their arguments, and the joining of a context's splits. Device
// code.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace tandem {

inline constexpr int kAttentionRows = 8;  // (query, head) of an item
inline constexpr int kAttentionThreads = 128;
inline constexpr int kThreadsPerRow = kAttentionThreads / kAttentionRows;
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kDimsPerThread = kMaxHeadDim / kThreadsPerRow;
inline constexpr int kMinSplitKeys = 64;

struct AttentionArgs {
  const CudaAttentionItem* items;
  const int32_t* block_table;
  int group;  // query heads per KV head
  int num_kv_heads;
  int head_dim;
  int block_size;
  float scale;
  int window;
  float soft_cap;
  int chunk;
  const float* sinks;      // per head, or null
  const float* slopes;     // likewise
  float k_scale, v_scale;  // of a cache in float8, else 1
  float* partial;          // null: one split
  int32_t* num_arrived;    // per item and KV head
};

// The first key that a query at `position` sees.
__device__ inline int FirstKey(const AttentionArgs& args, int position) {
  if (args.chunk > 0) return position / args.chunk * args.chunk;
  return args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
}

// What the sink of a head adds to a total of weights relative to `maximum`.
__device__ inline float SinkOf(const AttentionArgs& args, int head, float maximum) {
  return args.sinks == nullptr ? 0 : expf(args.sinks[head] - maximum);
}

// The result of split `split` of row `row` of item `item`: d sums, their maximum, their total.
__device__ inline float* PartialOf(const AttentionArgs& args, unsigned item, int kv_head,
                                   unsigned num_splits, unsigned split, int row) {
  const int64_t at =
      ((int64_t{item} * args.num_kv_heads + kv_head) * num_splits + split) * kAttentionRows + row;
  return args.partial + at * (args.head_dim + 2);
}

// The sums of a row over all splits, joined; for the 16 threads of the row. head: the query's.
template <class T>
__device__ inline void MergeSplits(T* to, const AttentionArgs& args, unsigned item, int kv_head,
                                   int head, unsigned num_splits, int row, int lane) {
  const int dim = args.head_dim;
  float maximum = -INFINITY;
  for (unsigned split = 0; split < num_splits; ++split) {
    const float* from = PartialOf(args, item, kv_head, num_splits, split, row);
    maximum = fmaxf(maximum, __ldcg(from + dim));
  }
  float sums[kDimsPerThread];
#pragma unroll
  for (int j = 0; j < kDimsPerThread; ++j) sums[j] = 0;
  float total = 0;
  for (unsigned split = 0; split < num_splits; ++split) {
    const float* from = PartialOf(args, item, kv_head, num_splits, split, row);
    const float weight = expf(__ldcg(from + dim) - maximum);
    if (weight == 0) continue;
    total += __ldcg(from + dim + 1) * weight;
#pragma unroll
    for (int j = 0; j < kDimsPerThread; ++j) {
      const int i = j * kThreadsPerRow + lane;
      if (i < dim) sums[j] += __ldcg(from + i) * weight;
    }
  }
  total += SinkOf(args, head, maximum);
#pragma unroll
  for (int j = 0; j < kDimsPerThread; ++j) {
    const int i = j * kThreadsPerRow + lane;
    if (i < dim) StoreFloat(to + i, sums[j] / total);
  }
}

// Cuts the context [*begin, *end) to this block's split, in whole `unit`s.
__device__ inline void CutToSplit(int unit, int* begin, int* end) {
  const int num_splits = static_cast<int>(gridDim.z);
  const int share = (*end - *begin + num_splits - 1) / num_splits;
  int size = (share + unit - 1) / unit * unit;
  size = size > kMinSplitKeys ? size : kMinSplitKeys;
  *begin += static_cast<int>(blockIdx.z) * size;
  *end = *end < *begin + size ? *end : *begin + size;
}

// After this block has stored its split: true if all other splits of its item and KV head are
// stored too, so that this block joins them. For all threads of the block.
__device__ inline bool IsLastSplit(const AttentionArgs& args, int kv_head) {
  __shared__ bool is_last;
  __threadfence();  // the split becomes visible before its arrival
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* arrived = args.num_arrived + blockIdx.x * args.num_kv_heads + kv_head;
    is_last = atomicAdd(arrived, 1) == static_cast<int>(gridDim.z) - 1;
    if (is_last) *arrived = 0;  // for the next launch
  }
  __syncthreads();
  __threadfence();
  return is_last;
}

// Attention of one query per request. False: no kernel for this group, head size or alignment.
bool LaunchDecodeAttention(OverlappingStream stream, dim3 grid, const Tensor& out, const Tensor& q,
                           const LayerKv& kv, const AttentionArgs& args);

}  // namespace tandem
