#pragma once

// The choice of experts, on the vec_*.h of the including isa_*.cc.

#include "kernels/cpu/math_kernels.h"
#include "kernels/cpu/norm_kernels.h"

namespace tandem {
namespace {

inline float MaxOf(const float* x, int64_t size) {
  Vec max = Set1(-__builtin_inff());
  ForEachVec(size, [&](int64_t i, int64_t count) {
    max = Max(KeepLanes(LoadN(x + i, count), 0, static_cast<int>(count), max), max);
  });
  return ReduceMax(max);
}

// out may be logits.
inline void Softmax(const float* logits, int64_t size, float* out) {
  const Vec max = Set1(MaxOf(logits, size));
  Vec total = Zero();
  ForEachVec(size, [&](int64_t i, int64_t count) {
    const Vec power = Exp(Sub(LoadN(logits + i, count), max));
    StoreN(out + i, power, count);
    total = Add(total, KeepLanes(power, 0, static_cast<int>(count), Zero()));
  });
  const float sum = ReduceAdd(total);
  for (int64_t i = 0; i < size; ++i) out[i] /= sum;
}

inline void RouterScores(const RouteTask& task, const float* logits, float* scores) {
  const int64_t size = task.num_experts;
  if (task.is_sigmoid) {
    ForEachVec(size, [&](int64_t i, int64_t count) {
      const Vec power = Exp(Sub(Zero(), LoadN(logits + i, count)));
      StoreN(scores + i, Div(Set1(1.0f), Add(Set1(1.0f), power)), count);
    });
    return;
  }
  Softmax(logits, size, scores);
}

// The first of the largest but -inf, which are taken; NaN is never larger. So each is found once,
// also where all are NaN. `begin` if all are taken.
inline int64_t BestOf(const float* values, int64_t begin, int64_t end) {
  int64_t best = -1;
  for (int64_t i = begin; i < end; ++i) {
    if (values[i] == -__builtin_inff()) continue;
    if (best < 0 || values[i] > values[best]) best = i;
  }
  return best < 0 ? begin : best;
}

// Keys outside the best groups become -inf.
inline void HideGroups(const RouteTask& task, float* keys, float* groups) {
  const int64_t size = task.num_experts / task.num_groups;
  for (int64_t g = 0; g < task.num_groups; ++g) {
    float* own = keys + g * size;
    float* best = own + BestOf(own, 0, size);
    float sum = *best;
    if (task.group_best == 2) {
      const float kept = *best;
      *best = -__builtin_inff();
      sum += own[BestOf(own, 0, size)];
      *best = kept;
    }
    groups[g] = sum;
  }
  for (int i = 0; i < task.top_groups; ++i) {
    groups[BestOf(groups, 0, task.num_groups)] = -__builtin_inff();
  }
  for (int64_t g = 0; g < task.num_groups; ++g) {
    if (groups[g] == -__builtin_inff()) continue;
    for (int64_t i = 0; i < size; ++i) keys[g * size + i] = -__builtin_inff();
  }
}

inline void MixSparsely(const RouteTask& task, const float* logits, float* scratch,
                        int32_t* expert_ids, float* weights) {
  const int64_t size = task.num_experts;
  float* near = scratch;
  float* left = scratch + size;  // without the expert that is chosen
  for (int64_t i = 0; i < size; ++i) left[i] = logits[i];
  for (int k = 0; k < 2; ++k) {
    const int64_t best = BestOf(left, 0, size);
    const float max = left[best];
    for (int64_t i = 0; i < size; ++i) {
      const float length = logits[i] < 0 ? -logits[i] : logits[i];
      const bool is_far = (max - logits[i]) / (length > max ? length : max) > 2 * task.jitter;
      near[i] = is_far ? -__builtin_inff() : left[i];
    }
    Softmax(near, size, near);
    expert_ids[k] = static_cast<int32_t>(best);
    weights[k] = near[best];
    left[best] = -__builtin_inff();
  }
}

void RouteTopK(const RouteTask& task, const float* logits, float* scratch, int32_t* expert_ids,
               float* weights) {
  if (task.is_sparse_mixer) return MixSparsely(task, logits, scratch, expert_ids, weights);
  const int64_t size = task.num_experts;
  float* scores = scratch;
  float* keys = scratch + size;  // an expert that is chosen, or may not be, is -inf
  RouterScores(task, logits, scores);
  for (int64_t i = 0; i < size; ++i) {
    keys[i] = task.bias == nullptr ? scores[i] : scores[i] + task.bias[i];
  }
  if (task.num_groups > 1) HideGroups(task, keys, keys + size);
  float kept = 0;
  for (int64_t k = 0; k < task.top_k; ++k) {
    const int64_t best = BestOf(keys, 0, size);
    expert_ids[k] = static_cast<int32_t>(best);
    weights[k] = scores[best];
    kept += scores[best];
    keys[best] = -__builtin_inff();
  }
  for (int64_t k = 0; k < task.top_k; ++k) {
    if (task.renormalize) weights[k] /= kept + 1e-20f;
    weights[k] *= task.scale;
    if (task.expert_scale != nullptr) weights[k] *= task.expert_scale[expert_ids[k]];
  }
}

}  // namespace
}  // namespace tandem
