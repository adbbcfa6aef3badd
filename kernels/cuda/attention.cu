// Attention over the paged cache for any head size up to 256, grouped heads, windows and soft caps.
//
// A block takes kRows rows (query, head) of one request and one KV head over one split of the
// context: it walks the keys in tiles, with a running maximum and sum per row. Long contexts are
// cut into splits of kSplitKeys keys that run side by side; MergeSplitsKernel then joins their
// sums.

#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kRows = 8;
constexpr int kTileKeys = 16;
constexpr int kThreads = kRows * kTileKeys;  // thread: one (row, key), or one row and 1/16 of d
constexpr int kMaxHeadDim = 256;
constexpr int kDimsPerThread = kMaxHeadDim / kTileKeys;
constexpr int kSplitKeys = 512;
constexpr int64_t kMaxSplitBlocks = 512;
constexpr int kItemWords = sizeof(CudaAttentionItem) / sizeof(int32_t);

struct AttentionArgs {
  const CudaAttentionItem* items;
  const int32_t* block_table;
  int64_t block_table_stride;
  int group;  // query heads per KV head
  int num_kv_heads;
  int head_dim;
  int block_size;
  float scale;
  int window;
  float soft_cap;
  float* partial;  // null: one split
};

// Where split `split` of row `row` of item `item` is kept: d sums, their maximum, their total.
__device__ inline float* PartialOf(const AttentionArgs& args, unsigned item, int kv_head,
                                   unsigned num_splits, unsigned split, int row) {
  const int64_t at =
      ((int64_t{item} * args.num_kv_heads + kv_head) * num_splits + split) * kRows + row;
  return args.partial + at * (args.head_dim + 2);
}

template <class T>
__global__ void AttentionKernel(T* out, int64_t out_stride, const T* q, int64_t q_stride,
                                const T* k_cache, const T* v_cache, AttentionArgs args) {
  __shared__ float queries[kRows][kMaxHeadDim];
  __shared__ float keys[kTileKeys][kMaxHeadDim + 1];  // +1: rows start in different banks
  __shared__ float values[kTileKeys][kMaxHeadDim];
  __shared__ float weights[kRows][kTileKeys];
  const CudaAttentionItem item = args.items[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(threadIdx.x) / kTileKeys;
  const int lane = static_cast<int>(threadIdx.x) % kTileKeys;
  const int dim = args.head_dim;
  const int num_rows = item.num_queries * args.group - item.first_row;  // may exceed kRows
  const int first_position = item.context_len - item.num_queries;
  const auto query_of = [&](int r) { return (item.first_row + r) / args.group; };
  const auto at_row = [&](int r, int64_t stride) {
    const int head = kv_head * args.group + (item.first_row + r) % args.group;
    return (item.first_token + query_of(r)) * stride + int64_t{head} * dim;
  };

  // The keys that any of these rows sees, cut to this split.
  const int rows_here = num_rows < kRows ? num_rows : kRows;
  const int first_query_position = first_position + query_of(0);
  const int last_query_position = first_position + query_of(rows_here - 1);
  int begin = args.window > 0 && first_query_position >= args.window
                  ? first_query_position - args.window + 1
                  : 0;
  int end = last_query_position + 1;
  if (args.partial != nullptr) {
    const int split_begin = static_cast<int>(blockIdx.z) * kSplitKeys;
    begin = begin > split_begin ? begin : split_begin;
    end = end < split_begin + kSplitKeys ? end : split_begin + kSplitKeys;
  }
  begin = begin / kTileKeys * kTileKeys;

  for (int i = static_cast<int>(threadIdx.x); i < kRows * dim; i += kThreads) {
    const int r = i / dim;
    queries[r][i % dim] = r < rows_here ? LoadFloat(q + at_row(r, q_stride) + i % dim) : 0;
  }
  const int position = row < rows_here ? first_position + query_of(row) : -1;
  const int first_key = args.window > 0 ? position - args.window + 1 : 0;
  float maximum = -INFINITY, total = 0;
  float sums[kDimsPerThread];
#pragma unroll
  for (int j = 0; j < kDimsPerThread; ++j) sums[j] = 0;

  for (int tile = begin; tile < end; tile += kTileKeys) {
    __syncthreads();  // the tile before has been used
    for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * dim; i += kThreads) {
      const int key = tile + i / dim;
      float k = 0, v = 0;
      if (key < end) {
        const int64_t block =
            args.block_table[item.request * args.block_table_stride + key / args.block_size];
        const int64_t at =
            ((block * args.num_kv_heads + kv_head) * args.block_size + key % args.block_size) *
                dim +
            i % dim;
        k = LoadFloat(k_cache + at);
        v = LoadFloat(v_cache + at);
      }
      keys[i / dim][i % dim] = k;
      values[i / dim][i % dim] = v;
    }
    __syncthreads();

    const int key = tile + lane;
    const bool is_seen = key >= first_key && key <= position && key < end;
    float score = -INFINITY;
    if (is_seen) {
      score = 0;
      for (int i = 0; i < dim; ++i) score += queries[row][i] * keys[lane][i];
      score *= args.scale;
      if (args.soft_cap > 0) score = args.soft_cap * tanhf(score / args.soft_cap);
    }
    const float tile_max = WarpMax<kTileKeys>(score);
    const float new_max = fmaxf(maximum, tile_max);
    // Nothing seen yet: exp(-inf - -inf) would be no number.
    const float shrink = new_max == -INFINITY ? 1 : expf(maximum - new_max);
    const float weight = is_seen ? expf(score - new_max) : 0;
    maximum = new_max;
    total = total * shrink + WarpSum<kTileKeys>(weight);
    weights[row][lane] = weight;
    __syncwarp();  // a row's 16 threads are in one warp
#pragma unroll
    for (int j = 0; j < kDimsPerThread; ++j) {
      const int i = j * kTileKeys + lane;
      if (i >= dim) break;
      float sum = sums[j] * shrink;
      for (int t = 0; t < kTileKeys; ++t) sum += weights[row][t] * values[t][i];
      sums[j] = sum;
    }
  }

  if (row >= rows_here) return;
  if (args.partial != nullptr) {
    float* to = PartialOf(args, blockIdx.x, kv_head, gridDim.z, blockIdx.z, row);
#pragma unroll
    for (int j = 0; j < kDimsPerThread; ++j) {
      if (j * kTileKeys + lane < dim) to[j * kTileKeys + lane] = sums[j];
    }
    if (lane == 0) {
      to[dim] = maximum;
      to[dim + 1] = total;
    }
    return;
  }
  T* to = out + at_row(row, out_stride);
#pragma unroll
  for (int j = 0; j < kDimsPerThread; ++j) {
    if (j * kTileKeys + lane < dim) StoreFloat(to + j * kTileKeys + lane, sums[j] / total);
  }
}

// One block per (item, KV head) and row.
template <class T>
__global__ void MergeSplitsKernel(T* out, int64_t out_stride, unsigned num_splits,
                                  AttentionArgs args) {
  const CudaAttentionItem item = args.items[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.z);
  const int request_row = item.first_row + row;
  if (request_row >= item.num_queries * args.group) return;
  const int dim = args.head_dim;
  float maximum = -INFINITY;
  for (unsigned split = 0; split < num_splits; ++split) {
    maximum = fmaxf(maximum, PartialOf(args, blockIdx.x, kv_head, num_splits, split, row)[dim]);
  }
  float total = 0;
  for (unsigned split = 0; split < num_splits; ++split) {
    const float* from = PartialOf(args, blockIdx.x, kv_head, num_splits, split, row);
    total += from[dim + 1] * expf(from[dim] - maximum);
  }
  const int head = kv_head * args.group + request_row % args.group;
  T* to = out + (item.first_token + request_row / args.group) * out_stride + int64_t{head} * dim;
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (unsigned split = 0; split < num_splits; ++split) {
      const float* from = PartialOf(args, blockIdx.x, kv_head, num_splits, split, row);
      sum += from[i] * expf(from[dim] - maximum);
    }
    StoreFloat(to + i, sum / total);
  }
}

int64_t ItemsOf(int64_t num_queries, int64_t group) {
  return (num_queries * group + kRows - 1) / kRows;
}

}  // namespace

CudaAttentionPlan::~CudaAttentionPlan() {
  if (items_copied != nullptr) cudaEventDestroy(items_copied);
}

std::unique_ptr<AttentionPlan> CudaBackend::MakeAttentionPlan(const AttentionShape& shape,
                                                              int64_t max_tokens,
                                                              int64_t max_requests) {
  CHECK_LE(shape.head_dim, kMaxHeadDim);
  auto plan = std::make_unique<CudaAttentionPlan>();
  plan->shape = shape;
  plan->max_tokens = max_tokens;
  plan->max_requests = max_requests;
  // Each request's last item may be partly empty.
  const int64_t words =
      (ItemsOf(max_tokens, shape.num_heads / shape.num_kv_heads) + max_requests) * kItemWords;
  // Splits pay where items alone do not fill the device; batches of more items go without.
  const int64_t partial_shape[] = {int64_t{kRows} * shape.num_kv_heads * kMaxSplitBlocks,
                                   shape.head_dim + 2};
  StatusOr<OwnedTensor> host = AllocatePinned(DType::kI32, {&words, 1});
  StatusOr<OwnedTensor> device = AllocateDevice(DType::kI32, {&words, 1}, stream_);
  StatusOr<OwnedTensor> partial = AllocateDevice(DType::kF32, partial_shape, stream_);
  for (const auto* memory : {&host, &device, &partial}) {
    CHECK(memory->ok()) << memory->status().ToString();
  }
  CHECK_CUDA(cudaEventCreateWithFlags(&plan->items_copied, cudaEventDisableTiming));
  plan->host_items = *std::move(host);
  plan->device_items = *std::move(device);
  plan->partial = *std::move(partial);
  return plan;
}

void CudaBackend::PlanAttention(const AttentionBatch& batch, AttentionPlan* generic_plan) {
  auto* plan = static_cast<CudaAttentionPlan*>(generic_plan);
  CheckBatch(batch, plan->max_tokens, plan->max_requests);
  *plan->mutable_batch() = batch;
  const int group = plan->shape.num_heads / plan->shape.num_kv_heads;
  auto* items = reinterpret_cast<CudaAttentionItem*>(plan->host_items.view().Data<int32_t>());
  int64_t num_items = 0;
  int32_t max_context = 0;
  CHECK_CUDA(cudaEventSynchronize(plan->items_copied));
  for (size_t r = 0; r < batch.context_len.size(); ++r) {
    const int32_t num_queries = batch.query_start[r + 1] - batch.query_start[r];
    max_context = std::max(max_context, batch.context_len[r]);
    for (int32_t row = 0; row < num_queries * group; row += kRows) {
      items[num_items++] = {.request = static_cast<int32_t>(r),
                            .first_token = batch.query_start[r],
                            .num_queries = num_queries,
                            .context_len = batch.context_len[r],
                            .first_row = row};
    }
  }
  plan->num_items = num_items;
  plan->num_splits = (max_context + kSplitKeys - 1) / kSplitKeys;
  if (num_items * plan->num_splits > kMaxSplitBlocks) plan->num_splits = 1;
  if (num_items == 0) return;
  const Tensor host = plan->host_items.view().Rows(0, num_items * kItemWords);
  CopyRows(plan->device_items.view().Rows(0, num_items * kItemWords), host, stream_);
  CHECK_CUDA(cudaEventRecord(plan->items_copied, stream_));
}

void CudaBackend::PagedAttention(const Tensor& out, const Tensor& q, const LayerKv& kv,
                                 const AttentionOptions& options,
                                 const AttentionPlan& generic_plan) {
  CheckPagedAttention(types(), out, q, kv, generic_plan);
  const auto& plan = static_cast<const CudaAttentionPlan&>(generic_plan);
  const auto num_splits = static_cast<unsigned>(plan.num_splits);
  const Tensor& block_table = plan.batch().block_table;
  AttentionArgs args = {
      .items = reinterpret_cast<const CudaAttentionItem*>(plan.device_items.view().Data<int32_t>()),
      .block_table = block_table.Data<int32_t>(),
      .block_table_stride = block_table.row_stride,
      .group = plan.shape.num_heads / plan.shape.num_kv_heads,
      .num_kv_heads = kv.num_kv_heads,
      .head_dim = kv.head_dim,
      .block_size = kv.block_size,
      .scale = options.scale,
      .window = options.sliding_window,
      .soft_cap = options.soft_cap,
      .partial = num_splits > 1 ? plan.partial.view().Data<float>() : nullptr};
  const auto items = static_cast<unsigned>(plan.num_items);
  const auto heads = static_cast<unsigned>(kv.num_kv_heads);
  WithType(out, [&]<class T>(T* out_data) {
    Launch(stream_, dim3(items, heads, num_splits), kThreads, AttentionKernel<T>, out_data,
           out.row_stride, static_cast<const T*>(q.data), q.row_stride, static_cast<const T*>(kv.k),
           static_cast<const T*>(kv.v), args);
    if (num_splits > 1) {
      Launch(stream_, dim3(items, heads, kRows), 64, MergeSplitsKernel<T>, out_data, out.row_stride,
             num_splits, args);
    }
  });
}

}  // namespace tandem
