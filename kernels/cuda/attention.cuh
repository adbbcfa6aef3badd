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
inline constexpr int kMaxSplits = 32;

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
  bool is_bidirectional;
  const int32_t* last_seen;  // of the step's tokens, or null
  const float* sinks;        // per head, or null
  const float* slopes;       // likewise
  float k_scale, v_scale;    // of a cache in float8, else 1
  float* partial;            // null: one split
  int32_t* num_arrived;      // per item and KV head
};

// The first key that a query at `position` sees.
__device__ inline int FirstKey(const AttentionArgs& args, int position) {
  if (args.chunk > 0) return position / args.chunk * args.chunk;
  if (args.window == 0) return 0;
  const int before = args.is_bidirectional ? args.window / 2 : args.window - 1;
  return position > before ? position - before : 0;
}

// The last one, for the step's token `token`.
__device__ inline int LastKey(const AttentionArgs& args, int position, int token, int context_len) {
  int last = position;
  if (args.is_bidirectional) last = args.window > 0 ? position + args.window / 2 : context_len - 1;
  if (args.last_seen != nullptr && args.last_seen[token] > last) last = args.last_seen[token];
  return last < context_len - 1 ? last : context_len - 1;
}

// The rows of an item for one KV head: row r is a query and one of the query heads of that KV head.
struct ItemRows {
  const AttentionArgs& args;
  const CudaAttentionItem& item;
  int kv_head;

  __device__ int QueryOf(int r) const { return (item.first_row + r) / args.group; }
  __device__ int HeadOf(int r) const {
    return kv_head * args.group + (item.first_row + r) % args.group;
  }
  __device__ int PositionOf(int r) const {
    return item.context_len - item.num_queries + QueryOf(r);
  }
  // The later a query, the later its last key.
  __device__ int LastKeyOf(int r) const {
    return LastKey(args, PositionOf(r), item.first_token + QueryOf(r), item.context_len);
  }
  // Of the row's first number in a tensor of the step's tokens.
  __device__ int64_t At(int r, int64_t stride) const {
    return (item.first_token + QueryOf(r)) * stride + int64_t{HeadOf(r)} * args.head_dim;
  }
};

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

// The sums of a row over the first `count` splits, joined. For all threads of a block, the 16 of
// each row side by side; of rows that are not there, nothing is stored. head: the query's. Each
// thread reads the weights of some splits for all: the loads of one split do not wait for
// another's.
template <class T>
__device__ inline void MergeSplits(T* to, const AttentionArgs& args, int kv_head, int head,
                                   int count, int row, bool is_there, int lane) {
  constexpr int kShare = kMaxSplits / kThreadsPerRow;
  constexpr int kAtOnce = 4;
  const int dim = args.head_dim;
  const auto split_at = [&](int split) {
    return PartialOf(args, blockIdx.x, kv_head, gridDim.z, split, row);
  };
  float maxima[kShare], totals[kShare], maximum = -INFINITY;
#pragma unroll
  for (int s = 0; s < kShare; ++s) {
    const int split = s * kThreadsPerRow + lane;
    maxima[s] = split < count ? __ldcg(split_at(split) + dim) : -INFINITY;
    totals[s] = split < count ? __ldcg(split_at(split) + dim + 1) : 0;
    maximum = fmaxf(maximum, maxima[s]);
  }
  maximum = WarpMax<kThreadsPerRow>(maximum);
  float weights[kShare], total = 0;
#pragma unroll
  for (int s = 0; s < kShare; ++s) {
    weights[s] = maxima[s] == -INFINITY ? 0 : expf(maxima[s] - maximum);
    total += totals[s] * weights[s];
  }
  total = WarpSum<kThreadsPerRow>(total);
  float sums[kDimsPerThread] = {};
  for (int first = 0; first < count; first += kAtOnce) {
    float parts[kAtOnce][kDimsPerThread];
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      const float* from = split_at(first + s < count ? first + s : first);
#pragma unroll
      for (int j = 0; j < kDimsPerThread; ++j) {
        const int i = j * kThreadsPerRow + lane;
        parts[s][j] = i < dim ? __ldcg(from + i) : 0;
      }
    }
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      const int split = first + s;
      float weight = 0;
#pragma unroll
      for (int share = 0; share < kShare; ++share) {
        const float its =
            __shfl_sync(kAllLanes, weights[share], split % kThreadsPerRow, kThreadsPerRow);
        if (split / kThreadsPerRow == share && split < count) weight = its;
      }
#pragma unroll
      for (int j = 0; j < kDimsPerThread; ++j) sums[j] += weight == 0 ? 0 : parts[s][j] * weight;
    }
  }
  if (!is_there) return;
  total += SinkOf(args, head, maximum);
#pragma unroll
  for (int j = 0; j < kDimsPerThread; ++j) {
    const int i = j * kThreadsPerRow + lane;
    if (i < dim) StoreFloat(to + i, sums[j] / total);
  }
}

// The keys of a block. `count` splits have any, the first ones; 1: nothing has to be joined.
struct Split {
  int begin, end;
  int count;
};

// A context [begin, end) is cut into splits of whole `unit`s. A block beyond the count has nothing
// to do.
__device__ inline Split SplitOf(const AttentionArgs& args, int unit, int begin, int end) {
  if (args.partial == nullptr) return {begin, end, 1};
  const int num_splits = static_cast<int>(gridDim.z), at = static_cast<int>(blockIdx.z);
  const int share = (end - begin + num_splits - 1) / num_splits;
  int size = (share + unit - 1) / unit * unit;
  size = size > kMinSplitKeys ? size : kMinSplitKeys;
  const int count = (end - begin + size - 1) / size;
  const int first = begin + at * size;
  return {first, end < first + size ? end : first + size, count > 1 ? count : 1};
}

// After this block has stored its split: true if all other splits of its item and KV head are
// stored too, so that this block joins them. For all threads of the block.
__device__ inline bool IsLastSplit(const AttentionArgs& args, int kv_head, int count) {
  __shared__ bool is_last;
  __threadfence();  // the split becomes visible before its arrival
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* arrived = args.num_arrived + blockIdx.x * args.num_kv_heads + kv_head;
    is_last = atomicAdd(arrived, 1) == count - 1;
    if (is_last) *arrived = 0;  // for the next launch
  }
  __syncthreads();
  __threadfence();
  return is_last;
}

// The end of a block that has all query heads of one KV head and one split, a row of kThreadsPerRow
// threads for each: joins what its warps have (sums, maximum, total), then the splits.
template <int kWarps, int kGroup, int kSize, class T>
__device__ inline void StoreJoined(T* out, int64_t out_stride,
                                   const float (&joined)[kWarps][kGroup][kSize],
                                   const AttentionArgs& args, const CudaAttentionItem& item,
                                   int kv_head, int num_splits) {
  constexpr int kDim = kSize - 2;
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / kThreadsPerRow;
  const int row_lane = static_cast<int>(threadIdx.x) % kThreadsPerRow;
  T* to = out + item.first_token * out_stride + int64_t{kv_head * args.group + row} * kDim;
  if (row < args.group) {
    float maximum = -INFINITY, total = 0;
    for (int w = 0; w < kWarps; ++w) maximum = fmaxf(maximum, joined[w][row][kDim]);
    float shares[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      shares[w] = joined[w][row][kDim] == -INFINITY ? 0 : expf(joined[w][row][kDim] - maximum);
      total += shares[w] * joined[w][row][kDim + 1];
    }
    if (num_splits == 1) total += SinkOf(args, kv_head * args.group + row, maximum);
    float* kept = num_splits == 1
                      ? nullptr
                      : PartialOf(args, blockIdx.x, kv_head, gridDim.z, blockIdx.z, row);
    for (int i = row_lane; i < kDim; i += kThreadsPerRow) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += shares[w] * joined[w][row][i];
      if (kept != nullptr) {
        kept[i] = sum;
      } else {
        StoreFloat(to + i, sum / total);
      }
    }
    if (kept != nullptr && row_lane == 0) {
      kept[kDim] = maximum;
      kept[kDim + 1] = total;
    }
  }
  if (num_splits == 1 || !IsLastSplit(args, kv_head, num_splits)) return;
  MergeSplits(to, args, kv_head, kv_head * args.group + row, num_splits, row, row < args.group,
              row_lane);
}

// Attention of one query per request. False: no kernel for this group, head size or alignment.
bool LaunchDecodeAttention(OverlappingStream stream, dim3 grid, const Tensor& out, const Tensor& q,
                           const LayerKv& kv, const AttentionArgs& args);

// The same on the tensor cores, of what DecodesOnTensorCores. Rows of q are aligned to 16 bytes.
void LaunchTensorCoreDecode(OverlappingStream stream, dim3 grid, const Tensor& out, const Tensor& q,
                            const LayerKv& kv, const AttentionArgs& args);

// Attention of many queries per request on the tensor cores, contexts in one split. False: no
// kernel for this type, head size or alignment.
bool LaunchTensorCoreAttention(OverlappingStream stream, int64_t num_items, const Tensor& out,
                               const Tensor& q, const LayerKv& kv, const AttentionArgs& args);

}  // namespace tandem
