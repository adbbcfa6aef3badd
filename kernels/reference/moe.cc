#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference_ops.h"

namespace tandem {

namespace {

// Of one token.
std::vector<float> Scores(const float* logits, int64_t num_experts, RouterScore kind) {
  std::vector<float> scores(static_cast<size_t>(num_experts));
  if (kind == RouterScore::kSigmoid) {
    for (size_t e = 0; e < scores.size(); ++e) scores[e] = 1 / (1 + std::exp(-logits[e]));
    return scores;
  }
  const float max = *std::max_element(logits, logits + num_experts);
  float sum = 0;
  for (size_t e = 0; e < scores.size(); ++e) sum += scores[e] = std::exp(logits[e] - max);
  for (float& score : scores) score /= sum;
  return scores;
}

// The first of the largest that is not taken yet.
int64_t TakeBest(const std::vector<float>& values, std::vector<bool>* taken) {
  int64_t best = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(*taken)[i] && (best < 0 || values[i] > values[static_cast<size_t>(best)])) {
      best = static_cast<int64_t>(i);
    }
  }
  (*taken)[static_cast<size_t>(best)] = true;
  return best;
}

// Which experts may not be chosen, because their groups are not.
std::vector<bool> OutsideGroups(const std::vector<float>& keys, const RouteOptions& options) {
  const auto num_groups = static_cast<size_t>(options.num_groups);
  const size_t size = keys.size() / num_groups;
  std::vector<float> groups;
  for (size_t g = 0; g < num_groups; ++g) {
    const std::vector<float> own(keys.begin() + static_cast<int64_t>(g * size),
                                 keys.begin() + static_cast<int64_t>((g + 1) * size));
    std::vector<bool> taken(size);
    float sum = 0;
    for (int i = 0; i < options.group_best; ++i)
      sum += own[static_cast<size_t>(TakeBest(own, &taken))];
    groups.push_back(sum);
  }
  std::vector<bool> taken(num_groups), outside(keys.size(), true);
  for (int i = 0; i < options.top_groups; ++i) {
    const auto first = static_cast<size_t>(TakeBest(groups, &taken)) * size;
    for (size_t e = first; e < first + size; ++e) outside[e] = false;
  }
  return outside;
}

void MixSparsely(const float* logits, int64_t num_experts, float jitter, int32_t* ids,
                 float* weights) {
  std::vector<float> left(logits, logits + num_experts);
  std::vector<bool> taken(left.size());
  for (int k = 0; k < 2; ++k) {
    const int64_t best = TakeBest(left, &taken);
    const float max = left[best];
    std::vector<float> near = left;
    for (int64_t e = 0; e < num_experts; ++e) {
      const float size = std::max(std::abs(logits[e]), max);
      if ((max - logits[e]) / size > 2 * jitter) near[e] = -INFINITY;
    }
    ids[k] = static_cast<int32_t>(best);
    weights[k] = Scores(near.data(), num_experts, RouterScore::kSoftmax)[best];
    left[best] = -INFINITY;
  }
}

}  // namespace

void ReferenceOps::DoRouteTopK(const Tensor& expert_ids, const Tensor& weights,
                               const Tensor& logits, const RouteOptions& options) {
  const int64_t num_experts = logits.shape[1], top_k = expert_ids.shape[1];
  for (int64_t t = 0; t < logits.rows(); ++t) {
    if (options.score == RouterScore::kSparseMixer) {
      MixSparsely(logits.Row<float>(t), num_experts, options.jitter, expert_ids.Row<int32_t>(t),
                  weights.Row<float>(t));
      continue;
    }
    const std::vector<float> scores = Scores(logits.Row<float>(t), num_experts, options.score);
    std::vector<float> keys = scores;
    if (!options.bias.empty()) {
      for (size_t e = 0; e < keys.size(); ++e) keys[e] += options.bias.Data<float>()[e];
    }
    std::vector<bool> taken = OutsideGroups(keys, options);
    float kept = 0;
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t best = TakeBest(keys, &taken);
      expert_ids.Row<int32_t>(t)[k] = static_cast<int32_t>(best);
      weights.Row<float>(t)[k] = scores[static_cast<size_t>(best)];
      kept += scores[static_cast<size_t>(best)];
    }
    for (int64_t k = 0; k < top_k; ++k) {
      float& weight = weights.Row<float>(t)[k];
      if (options.renormalize) weight /= kept + 1e-20f;
      weight *= options.scale;
      if (options.expert_scale.empty()) continue;
      weight *= options.expert_scale.Data<float>()[expert_ids.Row<int32_t>(t)[k]];
    }
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
                                  const ExpertPairs& pairs, LinearEpilogue epilogue,
                                  const Tensor& bias) {
  const auto* begin = pairs.begin.Data<int32_t>();
  for (int64_t e = 0; e < experts.size(); ++e) {
    const int64_t count = begin[e + 1] - begin[e];
    Linear(out.Rows(begin[e], count), x.Rows(begin[e], count), experts.expert(e),
           BiasOfExpert(bias, e), epilogue);
  }
}

void ReferenceOps::DoScaleRows(const Tensor& x, const Tensor& weights, const Tensor& rows) {
  for (int64_t i = 0; i < x.rows(); ++i) {
    const float weight = *weights.Row<float>(rows.Data<int32_t>()[i]);
    for (int64_t h = 0; h < x.shape[1]; ++h) x.Row<float>(i)[h] *= weight;
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
