// Attention over the paged cache for any head size up to 256, grouped heads, windows and soft caps,
// in one direction or both.
//
// A block computes kRows rows (query, head) of one request and one KV head over one split of the
// context: it walks the keys in tiles, with a running maximum and sum per row. If there are few
// items, each item's context is cut into splits that run side by side, and the split that ends last
// joins their sums. The number of splits depends only on the number of items, so that a captured
// launch fits any contexts.

#include <algorithm>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"
#include "kernels/op_checks.h"
#include "kernels/recurrence.h"

namespace tandem {
namespace {

constexpr int kRows = kAttentionRows;
constexpr int kTileKeys = kThreadsPerRow;
constexpr int kThreads = kAttentionThreads;  // one (row, key), or one row and 1/16 of d
constexpr int64_t kBlocksPerMultiprocessor = 3;
constexpr int kItemWords = sizeof(CudaAttentionItem) / sizeof(int32_t);
constexpr int kRunWords = sizeof(CudaStateRun) / sizeof(int32_t);

// Kv: of the cache.
template <class T, class Kv>
__global__ void AttentionKernel(T* out, int64_t out_stride, const T* q, int64_t q_stride,
                                const Kv* k_cache, const Kv* v_cache, AttentionArgs args) {
  WaitForPreviousKernel();
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
  const ItemRows rows = {args, item, kv_head};

  // The keys that any of these rows can see, cut to this split.
  const int rows_here = num_rows < kRows ? num_rows : kRows;
  const int first_seen = FirstKey(args, rows.PositionOf(0)) / kTileKeys * kTileKeys;
  const Split split = SplitOf(args, kTileKeys, first_seen, rows.LastKeyOf(rows_here - 1) + 1);
  const int begin = split.begin, end = split.end;
  if (static_cast<int>(blockIdx.z) >= split.count) return;

  for (int i = static_cast<int>(threadIdx.x); i < kRows * dim; i += kThreads) {
    const int r = i / dim;
    queries[r][i % dim] = r < rows_here ? LoadFloat(q + rows.At(r, q_stride) + i % dim) : 0;
  }
  const int position = row < rows_here ? rows.PositionOf(row) : -1;
  const int first_key = position < 0 ? 0 : FirstKey(args, position);
  const int last_key = position < 0 ? -1 : rows.LastKeyOf(row);
  const int head = rows.HeadOf(row < rows_here ? row : 0);
  const float slope = args.slopes == nullptr ? 0 : args.slopes[head];
  float maximum = -INFINITY, total = 0;
  float sums[kDimsPerThread];
#pragma unroll
  for (int j = 0; j < kDimsPerThread; ++j) sums[j] = 0;

  for (int tile = begin; tile < end; tile += kTileKeys) {
    __syncthreads();  // all threads are done with the previous tile
    for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * dim; i += kThreads) {
      const int key = tile + i / dim;
      float k = 0, v = 0;
      if (key < end) {
        const int64_t block = args.block_table[item.table_begin + key / args.block_size];
        const int64_t at =
            (block * args.num_kv_heads + kv_head) * args.block_size + key % args.block_size;
        const auto k_head = HeadAt(k_cache, at, dim, args.k_scale);
        const auto v_head = HeadAt(v_cache, at, dim, args.v_scale);
        k = LoadFloat(k_head.numbers + i % dim) * k_head.scale;
        v = LoadFloat(v_head.numbers + i % dim) * v_head.scale;
      }
      keys[i / dim][i % dim] = k;
      values[i / dim][i % dim] = v;
    }
    __syncthreads();

    const int key = tile + lane;
    const bool is_seen = key >= first_key && key <= last_key && key < end;
    float score = -INFINITY;
    if (is_seen) {
      score = 0;
      for (int i = 0; i < dim; ++i) score += queries[row][i] * keys[lane][i];
      score *= args.scale;
      if (args.soft_cap > 0) score = args.soft_cap * tanhf(score / args.soft_cap);
      score += slope * static_cast<float>(key - position);
    }
    const float tile_max = WarpMax<kTileKeys>(score);
    const float new_max = fmaxf(maximum, tile_max);
    // No key seen yet: exp(-inf - -inf) would be NaN.
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

  T* to = out + rows.At(row < rows_here ? row : 0, out_stride);
  if (split.count == 1) {
    if (row >= rows_here) return;
    total += SinkOf(args, head, maximum);
#pragma unroll
    for (int j = 0; j < kDimsPerThread; ++j) {
      if (j * kTileKeys + lane < dim) StoreFloat(to + j * kTileKeys + lane, sums[j] / total);
    }
    return;
  }
  if (row < rows_here) {
    float* kept = PartialOf(args, blockIdx.x, kv_head, gridDim.z, blockIdx.z, row);
#pragma unroll
    for (int j = 0; j < kDimsPerThread; ++j) {
      if (j * kTileKeys + lane < dim) kept[j * kTileKeys + lane] = sums[j];
    }
    if (lane == 0) {
      kept[dim] = maximum;
      kept[dim + 1] = total;
    }
  }
  if (!IsLastSplit(args, kv_head, split.count)) return;
  MergeSplits(to, args, kv_head, head, split.count, row, row < rows_here, lane);
}

// Blocks of a launch whose contexts are split.
int64_t MostSplitBlocks(const CudaDevice& device) {
  return kBlocksPerMultiprocessor * device.num_multiprocessors();
}

// Room for the items of any batch of num_tokens and num_requests: the last item of each request may
// be partly empty.
int64_t ItemWords(const AttentionShape& shape, int64_t num_tokens, int64_t num_requests) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  return ((num_tokens * group + kRows - 1) / kRows + num_requests) * kItemWords;
}

// Of items and runs.
int64_t FixedWords(const AttentionShape& shape, int64_t num_tokens, int64_t num_requests) {
  const int64_t runs = shape.state_block_size == 0 ? 0 : num_requests * kRunWords;
  return ItemWords(shape, num_tokens, num_requests) + runs;
}

}  // namespace

int64_t CudaOps::NumSplits(int64_t num_items, int64_t num_kv_heads) const {
  const int64_t wanted = MostSplitBlocks(*device_);
  const int64_t splits = wanted / std::max<int64_t>(1, num_items * num_kv_heads);
  return std::clamp<int64_t>(splits, 1, int64_t{kMaxSplits});
}

int64_t CudaAttentionPlan::WorkSize(int64_t num_tokens, int64_t num_requests) const {
  const int64_t words = FixedWords(shape, num_tokens, num_requests);
  if (!uses_flashinfer) return words;
  return words + FlashInferWorkSize(flashinfer_shape, num_tokens, num_requests);
}

StatusOr<std::unique_ptr<AttentionPlan>> CudaBackend::MakeAttentionPlan(const AttentionShape& shape,
                                                                        int64_t max_tokens,
                                                                        int64_t max_requests) {
  CHECK_LE(shape.head_dim, kMaxHeadDim);
  auto plan = std::make_unique<CudaAttentionPlan>(&device_);
  plan->shape = shape;
  plan->max_tokens = max_tokens;
  plan->max_requests = max_requests;
  plan->Reserve();
  plan->uses_flashinfer = UsesFlashInfer(shape);
  if (plan->uses_flashinfer) plan->flashinfer_shape = FlashInferShapeOf(shape);
  const int64_t words = plan->WorkSize(max_tokens, max_requests);
  const int64_t partial_rows = kRows * MostSplitBlocks(device_);
  ASSIGN_OR_RETURN(plan->host_work, AllocatePinned(DType::kI32, {&words, 1}));
  ASSIGN_OR_RETURN(plan->device_work, device_.Allocate(DType::kI32, {words}));
  ASSIGN_OR_RETURN(plan->partial,
                   device_.Allocate(DType::kF32, {partial_rows, shape.head_dim + 2}));
  ASSIGN_OR_RETURN(plan->num_arrived, device_.Allocate(DType::kI32, {MostSplitBlocks(device_)}));
  if (plan->uses_flashinfer) {
    const int64_t rows = FlashInferPartialRows(plan->flashinfer_shape);
    const int64_t width = int64_t{shape.num_heads} * shape.head_dim;
    ASSIGN_OR_RETURN(plan->flashinfer_partial, device_.Allocate(DType::kBf16, {rows, width}));
    ASSIGN_OR_RETURN(plan->flashinfer_lse, device_.Allocate(DType::kF32, {rows, shape.num_heads}));
  }
  return std::unique_ptr<AttentionPlan>(std::move(plan));
}

void CudaAttentionPlan::Reserve() {
  if (shape.state_block_size == 0) return;
  ReserveSequences(max_requests);
  chain_heads_.reserve(static_cast<size_t>(max_requests));
}

void CudaAttentionPlan::FillStateRuns(const AttentionBatch& batch, CudaStateRun* runs) {
  CHECK(!batch.host_block_table.empty() && !batch.host_slot_mapping.empty());
  KeepSequences(batch);
  std::fill_n(runs, num_state_runs, CudaStateRun());
  chain_heads_.clear();
  const auto* table = batch.host_block_table.Data<int32_t>();
  for (size_t i = 0; i < sequences().size(); ++i) {
    const BatchSequence& sequence = sequences()[i];
    const size_t leader = LeaderOf(sequences(), 0, i, shape.state_block_size);
    runs[i] = {.first_token = sequence.first_token,
               .num_tokens = sequence.num_tokens,
               .num_certain = sequence.num_certain(),
               .first_position = sequence.first_position,
               .table_begin = static_cast<int32_t>(sequence.blocks - table),
               .is_first = leader == i};
    chain_heads_.push_back(leader == i ? i : chain_heads_[leader]);
    if (leader == i) continue;
    CudaStateRun* last = runs + chain_heads_[i];
    while (last->next >= 0) last = runs + last->next;
    last->next = static_cast<int32_t>(i);
  }
}

void CudaAttentionPlan::Fill(const AttentionBatch& batch) {
  CHECK(!device_->is_capturing());
  CheckBatch(batch, max_tokens, max_requests);
  SetBatch(batch);
  const int group = shape.num_heads / shape.num_kv_heads;
  const bool has_room = !batch.work.empty();
  const Tensor& host = has_room ? batch.host_work : host_work.view();
  const Tensor& device = has_room ? batch.work : device_work.view();
  const auto num_requests = static_cast<int64_t>(batch.context_len.size());
  const int64_t item_words = ItemWords(shape, batch.positions.rows(), num_requests);
  CHECK_LE(item_words, host.rows());
  if (!has_room) device_->WaitFor(work_copied);
  auto* host_items = reinterpret_cast<CudaAttentionItem*>(host.Data<int32_t>());
  num_items = 0;
  is_decode = true;
  for (size_t r = 0; r < batch.context_len.size(); ++r) {
    const int32_t num_queries = batch.query_start[r + 1] - batch.query_start[r];
    is_decode &= num_queries == 1;
    const auto table_begin =
        static_cast<int32_t>(static_cast<int64_t>(r) * batch.block_table.row_stride);
    for (int32_t row = 0; row < num_queries * group; row += kRows) {
      CHECK_LE((num_items + 1) * kItemWords, item_words);
      host_items[num_items++] = {.table_begin = table_begin,
                                 .first_token = batch.query_start[r],
                                 .num_queries = num_queries,
                                 .context_len = batch.context_len[r],
                                 .first_row = row};
    }
  }
  items = reinterpret_cast<const CudaAttentionItem*>(device.Data<int32_t>());
  int64_t num_words = num_items * kItemWords;
  const int64_t fixed_words = FixedWords(shape, batch.positions.rows(), num_requests);
  CHECK_LE(fixed_words, host.rows());
  if (shape.state_block_size > 0) {
    num_words = fixed_words;
    num_state_runs = num_requests;
    state_runs = reinterpret_cast<const CudaStateRun*>(device.Data<int32_t>() + item_words);
    FillStateRuns(batch, reinterpret_cast<CudaStateRun*>(host.Data<int32_t>() + item_words));
  }
  if (uses_flashinfer) {
    num_words = WorkSize(batch.positions.rows(), num_requests);
    CHECK_LE(num_words, host.rows());
    flashinfer = PlanFlashInfer(
        flashinfer_shape, batch,
        {host.Data<int32_t>() + fixed_words, static_cast<size_t>(num_words - fixed_words)});
    num_decode_items = flashinfer.decode.num_requests * ((group + kRows - 1) / kRows);
    flashinfer_words = device.Data<int32_t>() + fixed_words;
  }
  if (has_room || num_words == 0) return;
  CopyRows(device.Rows(0, num_words), host.Rows(0, num_words), device_->stream());
  work_copied = device_->SetMark();
}

void CudaOps::DoPagedAttention(const Tensor& out, const Tensor& q, const LayerKv& kv,
                               const AttentionOptions& options, const AttentionPlan& generic_plan) {
  const auto& plan = static_cast<const CudaAttentionPlan&>(generic_plan);
  if (plan.num_items == 0) return;
  // Only the kernel for all shapes reads int8 and float8.
  const bool is_plain = kv.format == KvFormat::kCompute && options.chunk == 0 &&
                        options.sinks.empty() && options.slopes.empty() &&
                        !options.is_bidirectional && options.last_seen.empty();
  if (plan.uses_flashinfer && is_plain && AttendByFlashInfer(out, q, kv, options, plan)) return;
  AttendItems(out, q, kv, options, plan, plan.num_items, plan.is_decode);
}

void CudaOps::AttendItems(const Tensor& out, const Tensor& q, const LayerKv& kv,
                          const AttentionOptions& options, const CudaAttentionPlan& plan,
                          int64_t num_items, bool is_decode) {
  const auto num_splits = static_cast<unsigned>(NumSplits(num_items, kv.num_kv_heads));
  const Tensor& block_table = plan.batch().block_table;
  AttentionArgs args = {
      .items = plan.items,
      .block_table = block_table.Data<int32_t>(),
      .group = plan.shape.num_heads / plan.shape.num_kv_heads,
      .num_kv_heads = kv.num_kv_heads,
      .head_dim = kv.head_dim,
      .block_size = kv.block_size,
      .scale = options.scale,
      .window = options.sliding_window,
      .soft_cap = options.soft_cap,
      .chunk = options.chunk,
      .is_bidirectional = options.is_bidirectional,
      .last_seen = options.last_seen.empty() ? nullptr : options.last_seen.Data<int32_t>(),
      .sinks = options.sinks.empty() ? nullptr : options.sinks.Data<float>(),
      .slopes = options.slopes.empty() ? nullptr : options.slopes.Data<float>(),
      .k_scale = kv.k_scale,
      .v_scale = kv.v_scale,
      .partial = num_splits > 1 ? plan.partial.view().Data<float>() : nullptr,
      .num_arrived = plan.num_arrived.view().Data<int32_t>()};
  const auto items = static_cast<unsigned>(num_items);
  const auto heads = static_cast<unsigned>(kv.num_kv_heads);
  const dim3 grid(items, heads, num_splits);
  const bool is_plain = kv.format == KvFormat::kCompute;
  if (is_plain && is_decode && LaunchDecodeAttention(queue(), grid, out, q, kv, args)) return;
  // Few rows over long contexts fill the device by splits.
  if (is_plain && !is_decode && num_splits == 1 &&
      LaunchTensorCoreAttention(queue(), num_items, out, q, kv, args)) {
    return;
  }
  WithType(out, [&]<class T>(T* out_data) {
    const auto launch = [&]<class Kv>(const Kv* k, const Kv* v) {
      Launch(queue(), grid, kThreads, AttentionKernel<T, Kv>, out_data, out.row_stride,
             static_cast<const T*>(q.data), q.row_stride, k, v, args);
    };
    if (kv.format == KvFormat::kFloat8) {
      return launch(static_cast<const Float8*>(kv.k), static_cast<const Float8*>(kv.v));
    }
    if (kv.format == KvFormat::kInt8) {
      return launch(static_cast<const Int8*>(kv.k), static_cast<const Int8*>(kv.v));
    }
    launch(static_cast<const T*>(kv.k), static_cast<const T*>(kv.v));
  });
}

}  // namespace tandem
