#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference_ops.h"

namespace tandem {

void ReferenceOps::DoRouteTopK(const Tensor& expert_ids, const Tensor& weights,
                               const Tensor& logits, bool renormalize) {
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

void ReferenceOps::DoGroupByExpert(const ExpertPairs& pairs, const Tensor& expert_ids,
                                   const Tensor& weights) {
  const int64_t num_tokens = expert_ids.shape[0], top_k = expert_ids.shape[1];
  auto* begin = pairs.begin.Data<int32_t>();
  auto* chosen = pairs.chosen.Data<int32_t>();
  std::fill_n(chosen, pairs.chosen.rows(), -1);
  std::vector<int64_t> num_placed(static_cast<size_t>(num_tokens));
  int32_t pair = 0;
  for (int32_t e = 0; e < pairs.chosen.rows(); ++e) {
    begin[e] = pair;
    for (int64_t t = 0; t < num_tokens; ++t) {
      for (int64_t k = 0; k < top_k; ++k) {
        if (expert_ids.Row<int32_t>(t)[k] != e) continue;
        const int64_t place = num_placed[static_cast<size_t>(t)]++;
        pairs.of_token.Row<int32_t>(t)[place] = pair;
        pairs.weights.Row<float>(t)[place] = weights.Row<float>(t)[k];
        pairs.tokens.Data<int32_t>()[pair++] = static_cast<int32_t>(t);
      }
    }
    if (pair > begin[e]) *chosen++ = e;
  }
  begin[pairs.chosen.rows()] = pair;
  CHECK_EQ(pair, num_tokens * top_k);
}

void ReferenceOps::DoExpertLinear(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                                  const ExpertPairs& pairs, LinearEpilogue epilogue) {
  const auto* begin = pairs.begin.Data<int32_t>();
  for (int64_t e = 0; e < experts.size(); ++e) {
    const int64_t count = begin[e + 1] - begin[e];
    Linear(out.Rows(begin[e], count), x.Rows(begin[e], count), experts.expert(e), {}, epilogue);
  }
}

void ReferenceOps::DoAdaptedExpertLinear(const Tensor& out, const Tensor& x,
                                         const PackedExperts& experts, const ExpertPairs& pairs,
                                         LinearEpilogue epilogue, const AdapterRows& adapters) {
  const auto* begin = pairs.begin.Data<int32_t>();
  const size_t num_slots = adapters.pairs.size() / static_cast<size_t>(experts.size());
  for (int64_t e = 0; e < experts.size(); ++e) {
    const int64_t count = begin[e + 1] - begin[e];
    AdapterRows own = adapters;
    own.rows = adapters.rows.Rows(begin[e], count);
    own.pairs = adapters.pairs.subspan(static_cast<size_t>(e) * num_slots, num_slots);
    AdaptedLinear(out.Rows(begin[e], count), x.Rows(begin[e], count), experts.expert(e), {},
                  epilogue, own);
  }
}

void ReferenceOps::DoAddWeightedRows(const Tensor& residual, const Tensor& x, const Tensor& rows,
                                     const Tensor& weights) {
  for (int64_t t = 0; t < residual.rows(); ++t) {
    for (int64_t k = 0; k < rows.shape[1]; ++k) {
      const int32_t row = rows.Row<int32_t>(t)[k];
      CHECK(row >= 0 && row < x.rows()) << row << " of " << x.rows();
      const float weight = weights.Row<float>(t)[k];
      for (int64_t h = 0; h < x.shape[1]; ++h) {
        residual.Row<float>(t)[h] += weight * x.Row<float>(row)[h];
      }
    }
  }
}

}  // namespace tandem
