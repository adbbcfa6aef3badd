// Attention over chosen keys: one token after another.

#include "kernels/selected_keys.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference_ops.h"

namespace tandem {
namespace {

const float* LatentOf(const TokenOfRun& token, int32_t key, const LayerKv& kv) {
  return static_cast<const float*>(kv.k) + ReferenceKvOffset(kv, token.SlotOf(key, kv), 0);
}

float Dot(const float* a, const float* b, int64_t size) {
  float sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

void ReferenceOps::DoSelectKeys(const Tensor& selected, const Tensor& q, const Tensor& weights,
                                const IndexOptions& options, const LayerKv& kv,
                                const AttentionPlan& plan) {
  std::vector<float> scores;
  std::vector<int32_t> order;
  for (int64_t row = 0; row < plan.num_tokens(); ++row) {
    const TokenOfRun token = TokenOfRow(plan, row);
    if (ChooseAll(token, ChosenOf(selected, row))) continue;
    scores.assign(static_cast<size_t>(token.num_keys()), 0);
    order.resize(scores.size());
    for (int32_t key = 0; key < token.num_keys(); ++key) {
      const float* k = LatentOf(token, key, kv) + kv.head_dim - options.dim;
      for (int64_t h = 0; h < options.num_heads; ++h) {
        const float product =
            options.scale * Dot(q.Row<float>(row) + h * options.dim, k, options.dim);
        scores[static_cast<size_t>(key)] += weights.Row<float>(row)[h] * std::max(product, 0.0F);
      }
    }
    ChooseBest(scores.data(), token.num_keys(), order.data(), ChosenOf(selected, row));
  }
}

void ReferenceOps::DoAttendSelected(const Tensor& out, const Tensor& q, const Tensor& selected,
                                    const SelectedOptions& options, const LayerKv& kv,
                                    const AttentionPlan& plan) {
  const int64_t dim = q.shape[1] / options.num_heads;
  std::vector<float> weights;
  const auto attend = [&](const TokenOfRun& token, const float* query, float* result) {
    const auto chosen = Chosen(ChosenOf(selected, token.row));
    weights.clear();
    for (const int32_t key : chosen) {
      weights.push_back(options.scale * Dot(query, LatentOf(token, key, kv), dim));
    }
    const float max = *std::max_element(weights.begin(), weights.end());
    float sum = 0;
    for (float& weight : weights) sum += weight = std::exp(weight - max);
    std::fill_n(result, dim, 0.0F);
    for (size_t k = 0; k < chosen.size(); ++k) {
      const float* value = LatentOf(token, chosen[k], kv);
      for (int64_t i = 0; i < dim; ++i) result[i] += weights[k] / sum * value[i];
    }
  };
  for (int64_t row = 0; row < plan.num_tokens(); ++row) {
    const TokenOfRun token = TokenOfRow(plan, row);
    for (int64_t h = 0; h < options.num_heads; ++h) {
      attend(token, q.Row<float>(row) + h * dim, out.Row<float>(row) + h * dim);
    }
  }
}

}  // namespace tandem
