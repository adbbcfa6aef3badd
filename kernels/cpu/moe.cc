// The ops around a mixture of experts: which experts a token has, and the sum of what they yield.

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"

namespace tandem {

void CpuBackend::RouteTopK(const Tensor& expert_ids, const Tensor& weights, const Tensor& logits,
                           bool renormalize) {
  CheckRouteTopK(expert_ids, weights, logits);
  const int64_t num_experts = logits.shape[1], top_k = expert_ids.shape[1];
  ForEach(logits.rows(), num_experts * (top_k + 1), [&](int64_t begin, int64_t end, int thread) {
    float* scratch = Scratch(thread, num_experts);
    for (int64_t t = begin; t < end; ++t) {
      table_.route_top_k(logits.Row<float>(t), num_experts, top_k, renormalize, scratch,
                         expert_ids.Row<int32_t>(t), weights.Row<float>(t));
    }
  });
}

// Cut by columns: a row's sum keeps its order whoever computes it.
void CpuBackend::ScatterAdd(const Tensor& residual, const Tensor& x, const Tensor& rows,
                            const Tensor& weights) {
  CheckScatterAdd(types(), residual, x, rows, weights);
  constexpr int64_t kColumns = 256;
  const int64_t size = x.shape[1], num_rows = x.rows();
  const auto* to = rows.Data<int32_t>();
  for (int64_t i = 0; i < num_rows; ++i) {
    CHECK(to[i] >= 0 && to[i] < residual.rows()) << to[i] << " of " << residual.rows();
  }
  const bool is_f32 = x.dtype == DType::kF32;
  ForEach((size + kColumns - 1) / kColumns, num_rows * kColumns / 16,
          [&](int64_t begin, int64_t end, int) {
            const int64_t first = begin * kColumns;
            const int64_t count = std::min(size, end * kColumns) - first;
            const auto* from = static_cast<const std::byte*>(x.data) + first * SizeOf(x.dtype);
            for (int64_t i = 0; i < num_rows; ++i) {
              kernels().add_scaled(residual.Row<float>(to[i]) + first,
                                   from + i * x.row_stride * SizeOf(x.dtype), is_f32,
                                   weights.Data<float>()[i], count);
            }
          });
}

}  // namespace tandem
