#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/op_checks.h"
#include "kernels/reference/reference_ops.h"

namespace tandem {

ReferencePlan::ReferencePlan(int64_t max_tokens, int64_t max_requests)
    : max_tokens_(max_tokens), max_requests_(max_requests) {
  query_start_.reserve(static_cast<size_t>(max_requests) + 1);
  context_len_.reserve(static_cast<size_t>(max_requests));
  ReserveSequences(max_requests);
}

void ReferencePlan::Fill(const AttentionBatch& batch) {
  CheckBatch(batch, max_tokens_, max_requests_);
  SetBatch(batch);
  KeepSequences(batch);
  query_start_.assign(batch.query_start.begin(), batch.query_start.end());
  context_len_.assign(batch.context_len.begin(), batch.context_len.end());
}

void ReferenceOps::DoPagedAttention(const Tensor& out, const Tensor& q, const LayerKv& kv,
                                    const AttentionOptions& options,
                                    const AttentionPlan& generic_plan) {
  const auto& plan = static_cast<const ReferencePlan&>(generic_plan);
  const int dim = kv.head_dim;
  const int num_heads = static_cast<int>(out.shape[1]) / dim;
  const int group = num_heads / kv.num_kv_heads;
  std::vector<float> weights;

  // One query of one head.
  auto attend = [&](const float* query, float* result, int head, int position, int last_seen,
                    int context, const int32_t* blocks) {
    auto offset = [&](int key) {
      const int64_t slot =
          int64_t{blocks[key / kv.block_size]} * kv.block_size + key % kv.block_size;
      return ReferenceKvOffset(kv, slot, head / group);
    };
    const int window = options.sliding_window, chunk = options.chunk;
    const int before = options.is_bidirectional ? window / 2 : window - 1;
    const int first = window > 0  ? std::max(0, position - before)
                      : chunk > 0 ? position / chunk * chunk
                                  : 0;
    int last = position;
    if (options.is_bidirectional) {
      last = window > 0 ? std::min(context - 1, position + window / 2) : context - 1;
    }
    last = std::min(std::max(last, last_seen), context - 1);
    const float slope = options.slopes.empty() ? 0 : options.slopes.Data<float>()[head];
    weights.assign(last + 1, 0);
    float max = -INFINITY;
    for (int key = first; key <= last; ++key) {
      const float* k = static_cast<const float*>(kv.k) + offset(key);
      float score = 0;
      for (int i = 0; i < dim; ++i) score += query[i] * k[i];
      score *= options.scale;
      if (options.soft_cap > 0) score = options.soft_cap * std::tanh(score / options.soft_cap);
      score += slope * static_cast<float>(key - position);
      weights[key] = score;
      max = std::max(max, score);
    }
    float sum = 0;
    for (int key = first; key <= last; ++key) sum += weights[key] = std::exp(weights[key] - max);
    if (!options.sinks.empty()) sum += std::exp(options.sinks.Data<float>()[head] - max);
    std::fill_n(result, dim, 0.0f);
    for (int key = first; key <= last; ++key) {
      const float* v = static_cast<const float*>(kv.v) + offset(key);
      for (int i = 0; i < dim; ++i) result[i] += weights[key] / sum * v[i];
    }
  };

  for (size_t r = 0; r < plan.context_len().size(); ++r) {
    const int begin = plan.query_start()[r];
    const int end = plan.query_start()[r + 1];
    for (int t = begin; t < end; ++t) {
      const int position = plan.context_len()[r] - (end - t);
      const int last_seen = options.last_seen.empty() ? 0 : options.last_seen.Data<int32_t>()[t];
      for (int h = 0; h < num_heads; ++h) {
        attend(q.Row<float>(t) + h * dim, out.Row<float>(t) + h * dim, h, position, last_seen,
               plan.context_len()[r],
               plan.batch().block_table.Row<int32_t>(static_cast<int64_t>(r)));
      }
    }
  }
}

}  // namespace tandem
