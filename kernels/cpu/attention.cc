// The batch's plan, RoPE with the KV write, and paged attention.

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/op_checks.h"

namespace tandem {

// The keys are walked once for all of them, but a latent, which all heads share, is to be work for
// several threads.
int HeadsAtOnce(int heads_per_kv_head) {
  constexpr int kMost = 32;
  for (int heads = std::min(heads_per_kv_head, kMost); heads > kMost / 4; --heads) {
    if (heads_per_kv_head % heads == 0) return heads;
  }
  return heads_per_kv_head <= kMost ? heads_per_kv_head : 1;
}

CpuPlan::CpuPlan(const AttentionShape& shape, int64_t max_tokens, int64_t max_requests)
    : max_tokens_(max_tokens), max_requests_(max_requests) {
  CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0)
      << shape.num_heads << " heads over " << shape.num_kv_heads;
  queries_per_item_ =
      std::max(1, kMaxQueryRows / HeadsAtOnce(shape.num_heads / shape.num_kv_heads));
  // The last item of every request may be partly empty.
  items_.reserve(max_tokens / queries_per_item_ + max_requests);
  ReserveSequences(max_requests);
}

void CpuPlan::Fill(const AttentionBatch& batch) {
  CheckBatch(batch, max_tokens_, max_requests_);
  SetBatch(batch);
  KeepSequences(batch);
  items_.clear();
  num_keys_ = 0;
  for (size_t r = 0; r < batch.context_len.size(); ++r) {
    const int32_t context = batch.context_len[r];
    const int32_t end = batch.query_start[r + 1];
    for (int32_t token = batch.query_start[r]; token < end; token += queries_per_item_) {
      const int32_t num_queries = std::min(queries_per_item_, end - token);
      const int32_t position = context - (end - token);
      items_.push_back({batch.block_table.Row<int32_t>(static_cast<int64_t>(r)), token, num_queries,
                        position, context});
      num_keys_ += int64_t{num_queries} * (position + num_queries);
    }
  }
}

void CpuOps::ReserveAttentionScratch(const AttentionShape& shape) {
  const int64_t floats = AttentionScratchFloats(kMaxQueryRows, PaddedHeadDim(shape.head_dim));
  for (int thread = 0; thread < pool_->num_threads(); ++thread) Scratch(thread, floats);
}

void CpuOps::DoQkNormRopeWriteKv(const Tensor& out, const Tensor& qkv, const QkRope& rope,
                                 const LayerKv& kv, const AttentionPlan& plan) {
  CheckPositionsAndSlots(rope.rotary_dim == 0 ? Tensor() : rope.cos, kv, plan, rope.rows);
  auto data = [](const Tensor& x) { return x.empty() ? nullptr : x.Data<float>(); };
  RopeTask task;
  task.qkv = qkv.data;
  task.qkv_stride = qkv.row_stride;
  task.qkv_is_f32 = qkv.dtype == DType::kF32;
  task.out = out.data;
  task.out_stride = out.row_stride;
  task.k = kv.k;
  task.v = kv.v;
  task.kv_format = kv.format;
  task.k_scale = kv.k_scale;
  task.v_scale = kv.v_scale;
  task.num_heads = static_cast<int>(out.shape[1]) / kv.head_dim;
  task.num_kv_heads = kv.num_kv_heads;
  task.head_dim = kv.head_dim;
  task.padded_dim = static_cast<int>(PaddedHeadDim(kv.head_dim));
  task.cos = data(rope.cos);
  task.sin = data(rope.sin);
  task.rotary_dim = rope.rotary_dim;
  task.q_norm = data(rope.q_norm);
  task.k_norm = data(rope.k_norm);
  task.epsilon = rope.norm_epsilon;
  task.norms_after_rope = rope.norms_after_rope;
  task.is_interleaved = rope.is_interleaved;
  task.q_scale = data(rope.q_scale);
  task.is_of_q_alone = rope.is_of_q_alone;
  task.positions = (rope.rows.empty() ? plan.batch().positions : rope.rows).Data<int32_t>();
  task.slots = plan.batch().slot_mapping.Data<int32_t>();
  const int64_t heads = task.num_heads / task.num_kv_heads + 2;
  ForEach(plan.num_tokens() * kv.num_kv_heads, heads * kv.head_dim / 2,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i) {
              kernels().rope(task, i / kv.num_kv_heads, static_cast<int>(i % kv.num_kv_heads));
            }
          });
}

void CpuOps::DoLatentRopeWriteKv(const Tensor& out, const Tensor& q, const Tensor& latent,
                                 const LatentRope& rope, const LayerKv& kv,
                                 const AttentionPlan& plan) {
  CheckPositionsAndSlots(rope.cos, kv, plan);
  LatentTask task;
  task.q = q.data;
  task.q_stride = q.row_stride;
  task.latent = latent.data;
  task.latent_stride = latent.row_stride;
  task.out = out.data;
  task.out_stride = out.row_stride;
  if (!rope.index_key.empty()) {
    task.index_key = rope.index_key.data;
    task.index_key_stride = rope.index_key.row_stride;
    task.index_dim = static_cast<int>(rope.index_key.shape[1]);
  }
  task.num_heads = static_cast<int>(out.shape[1]) / (kv.head_dim - task.index_dim);
  task.q_dim = static_cast<int>(q.shape[1]) / task.num_heads;
  task.pe_dim = rope.pe_dim;
  task.is_interleaved = rope.is_interleaved;
  RopeTask& key = task.key;
  key.k = kv.k;
  key.kv_format = kv.format;
  key.k_scale = kv.k_scale;
  key.num_kv_heads = 1;
  key.head_dim = kv.head_dim;
  key.padded_dim = static_cast<int>(PaddedHeadDim(kv.head_dim));
  if (!rope.cos.empty()) {
    key.cos = rope.cos.Data<float>();
    key.sin = rope.sin.Data<float>();
  }
  key.rotary_dim = rope.pe_dim;
  key.k_norm = rope.norm.Data<float>();
  key.epsilon = rope.norm_epsilon;
  key.positions = plan.batch().positions.Data<int32_t>();
  key.slots = plan.batch().slot_mapping.Data<int32_t>();
  ForEach(plan.num_tokens(), (int64_t{task.num_heads} * rope.pe_dim + kv.head_dim) / 2,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t t = begin; t < end; ++t) kernels().latent_rope(task, t);
          });
}

void CpuOps::DoPagedAttention(const Tensor& out, const Tensor& q, const LayerKv& kv,
                              const AttentionOptions& options, const AttentionPlan& plan) {
  const auto& cpu_plan = static_cast<const CpuPlan&>(plan);
  const auto items = cpu_plan.items();
  if (items.empty()) return;
  AttentionTask task;
  task.q = q.data;
  task.q_stride = q.row_stride;
  task.out = out.data;
  task.out_stride = out.row_stride;
  task.k = kv.k;
  task.v = kv.v;
  task.kv_format = kv.format;
  task.k_scale = kv.k_scale;
  task.v_scale = kv.v_scale;
  task.is_latent = kv.is_latent;
  task.num_heads = static_cast<int>(out.shape[1]) / kv.head_dim;
  task.num_kv_heads = kv.num_kv_heads;
  task.heads_at_once = HeadsAtOnce(task.num_heads / task.num_kv_heads);
  CHECK_LE(task.heads_at_once * cpu_plan.queries_per_item(), kMaxQueryRows);
  task.head_dim = kv.head_dim;
  task.padded_dim = static_cast<int>(PaddedHeadDim(kv.head_dim));
  task.tiles_per_block = kv.block_size / kTileTokens;
  task.scale = options.scale;
  task.window = options.sliding_window;
  task.soft_cap = options.soft_cap;
  task.chunk = options.chunk;
  task.sinks = options.sinks.empty() ? nullptr : options.sinks.Data<float>();
  task.slopes = options.slopes.empty() ? nullptr : options.slopes.Data<float>();
  task.is_bidirectional = options.is_bidirectional;
  task.last_seen = options.last_seen.empty() ? nullptr : options.last_seen.Data<int32_t>();

  const int64_t scratch_floats = AttentionScratchFloats(kMaxQueryRows, task.padded_dim);
  const int64_t num_parts = task.num_heads / task.heads_at_once;
  const int64_t num_items = static_cast<int64_t>(items.size()) * num_parts;
  // Two products of padded_dim per key and head, at about 100 multiplications per ns.
  const int64_t item_ns = cpu_plan.num_keys() / static_cast<int64_t>(items.size()) *
                              task.heads_at_once * task.padded_dim / 50 +
                          500;
  // The longest contexts come last in a prefill: the last items are claimed first, so that the
  // short ones fill up the end.
  ForEach(num_items, item_ns, [&](int64_t begin, int64_t end, int thread) {
    float* scratch = Scratch(thread, scratch_floats);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t reversed = num_items - 1 - i;
      kernels().attention(task, items[reversed / num_parts], static_cast<int>(reversed % num_parts),
                          scratch);
    }
  });
}

}  // namespace tandem
