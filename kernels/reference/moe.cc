#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/op_checks.h"
#include "kernels/reference/reference_backend.h"

namespace tandem {

void ReferenceBackend::RouteTopK(const Tensor& expert_ids, const Tensor& weights,
                                 const Tensor& logits, bool renormalize) {
  CheckRouteTopK(expert_ids, weights, logits);
  const int64_t num_experts = logits.shape[1], top_k = expert_ids.shape[1];
  std::vector<float> probabilities(static_cast<size_t>(num_experts));
  for (int64_t t = 0; t < logits.rows(); ++t) {
    const float* row = logits.Row<float>(t);
    const float max = *std::max_element(row, row + num_experts);
    float sum = 0;
    for (int64_t e = 0; e < num_experts; ++e) sum += probabilities[e] = std::exp(row[e] - max);
    for (float& probability : probabilities) probability /= sum;
    std::vector<bool> taken(probabilities.size());
    float kept = 0;
    for (int64_t k = 0; k < top_k; ++k) {
      int64_t best = -1;
      for (int64_t e = 0; e < num_experts; ++e) {
        if (!taken[e] && (best < 0 || probabilities[e] > probabilities[best])) best = e;
      }
      taken[best] = true;
      expert_ids.Row<int32_t>(t)[k] = static_cast<int32_t>(best);
      weights.Row<float>(t)[k] = probabilities[best];
      kept += probabilities[best];
    }
    for (int64_t k = 0; renormalize && k < top_k; ++k) weights.Row<float>(t)[k] /= kept;
  }
}

void ReferenceBackend::ScatterAdd(const Tensor& residual, const Tensor& x, const Tensor& rows,
                                  const Tensor& weights) {
  CheckScatterAdd({DType::kF32, DType::kF32}, residual, x, rows, weights);
  for (int64_t i = 0; i < x.rows(); ++i) {
    const int32_t row = rows.Data<int32_t>()[i];
    CHECK(row >= 0 && row < residual.rows()) << row << " of " << residual.rows();
    const float weight = weights.Data<float>()[i];
    for (int64_t h = 0; h < x.shape[1]; ++h) {
      residual.Row<float>(row)[h] += weight * x.Row<float>(i)[h];
    }
  }
}

}  // namespace tandem
