// The ops of a mixture of experts: the choice of experts, their products, and the weighted sum of
// their results.

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace tandem {

void CpuOps::DoRouteTopK(const Tensor& expert_ids, const Tensor& weights, const Tensor& logits,
                         const RouteOptions& options) {
  RouteTask task;
  task.num_experts = logits.shape[1];
  task.top_k = expert_ids.shape[1];
  task.is_sigmoid = options.score == RouterScore::kSigmoid;
  task.renormalize = options.renormalize;
  task.scale = options.scale;
  task.bias = options.bias.empty() ? nullptr : options.bias.Data<float>();
  task.num_groups = options.num_groups;
  task.top_groups = options.top_groups;
  task.group_best = options.group_best;
  task.is_sparse_mixer = options.score == RouterScore::kSparseMixer;
  task.jitter = options.jitter;
  task.expert_scale = options.expert_scale.empty() ? nullptr : options.expert_scale.Data<float>();
  const int64_t token_ns = task.num_experts * (task.top_k + task.top_groups);
  ForEach(logits.rows(), token_ns, [&](int64_t begin, int64_t end, int thread) {
    float* scratch = Scratch(thread, 2 * task.num_experts + task.num_groups);
    for (int64_t t = begin; t < end; ++t) {
      table_.route_top_k(task, logits.Row<float>(t), scratch, expert_ids.Row<int32_t>(t),
                         weights.Row<float>(t));
    }
  });
}

// Counts the pairs of each expert, then places them.
void CpuOps::DoGroupByExpert(const ExpertPairs& pairs, const Tensor& expert_ids,
                             const Tensor& weights) {
  const int64_t num_tokens = expert_ids.shape[0], top_k = expert_ids.shape[1];
  const int64_t num_experts = pairs.chosen.rows();
  auto* begin = pairs.begin.Data<int32_t>();
  std::fill_n(begin, num_experts + 1, 0);
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t e = expert_ids.Row<int32_t>(t)[k];
      CHECK(e >= 0 && e < num_experts) << e << " of " << num_experts;
      ++begin[e + 1];
    }
  }
  auto* chosen = pairs.chosen.Data<int32_t>();
  std::fill_n(chosen, num_experts, -1);
  for (int64_t e = 0; e < num_experts; ++e) {
    if (begin[e + 1] > 0) *chosen++ = static_cast<int32_t>(e);
    begin[e + 1] += begin[e];
  }
  for (int64_t t = 0; t < num_tokens; ++t) {
    const auto* ids = expert_ids.Row<int32_t>(t);
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t pair = begin[ids[k]]++;
      const auto place = std::count_if(ids, ids + top_k, [&](int32_t e) { return e < ids[k]; });
      pairs.tokens.Data<int32_t>()[pair] = static_cast<int32_t>(t);
      pairs.of_token.Row<int32_t>(t)[place] = pair;
      pairs.weights.Row<float>(t)[place] = weights.Row<float>(t)[k];
    }
  }
  // Placing moved each expert's begin to that of the next expert.
  std::copy_backward(begin, begin + num_experts, begin + num_experts + 1);
  begin[0] = 0;
}

void CpuOps::DoExpertLinear(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                            const ExpertPairs& pairs, LinearEpilogue epilogue, const Tensor& bias) {
  const auto* begin = pairs.begin.Data<int32_t>();
  for (int64_t e = 0; e < experts.size(); ++e) {
    const int64_t count = begin[e + 1] - begin[e];
    if (count == 0) continue;
    Linear(out.Rows(begin[e], count), x.Rows(begin[e], count), experts.expert(e),
           BiasOfExpert(bias, e), epilogue);
  }
}

void CpuOps::DoScaleRows(const Tensor& x, const Tensor& weights, const Tensor& rows) {
  ForEach(x.rows(), x.shape[1] / 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      kernels().scale(x.Rows(i, 1).data, *weights.Row<float>(rows.Data<int32_t>()[i]), x.shape[1]);
    }
  });
}

// Cut by columns as well, so that one token's sum is work for several threads.
void CpuOps::DoAddWeightedRows(const Tensor& residual, const Tensor& x, const Tensor& rows,
                               const Tensor& weights) {
  constexpr int64_t kColumns = 256;
  const int64_t size = x.shape[1], num_tokens = residual.rows(), num_rows = rows.shape[1];
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t k = 0; k < num_rows; ++k) {
      const int32_t row = rows.Row<int32_t>(t)[k];
      CHECK(row >= 0 && row < x.rows()) << row << " of " << x.rows();
    }
  }
  const bool is_f32 = x.dtype == DType::kF32;
  const int64_t parts = (size + kColumns - 1) / kColumns;
  ForEach(num_tokens * parts, num_rows * kColumns / 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t t = item / parts, first = item % parts * kColumns;
      const int64_t count = std::min(size - first, kColumns);
      for (int64_t k = 0; k < num_rows; ++k) {
        const int64_t at = rows.Row<int32_t>(t)[k] * x.row_stride + first;
        kernels().add_scaled(residual.Row<float>(t) + first,
                             static_cast<const std::byte*>(x.data) + at * SizeOf(x.dtype), is_f32,
                             weights.Row<float>(t)[k], count);
      }
    }
  });
}

}  // namespace tandem
