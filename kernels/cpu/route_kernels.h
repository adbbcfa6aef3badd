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

void RouteTopK(const float* logits, int64_t size, int64_t top_k, bool renormalize, float* scratch,
               int32_t* expert_ids, float* weights) {
  const Vec max = Set1(MaxOf(logits, size));
  Vec total = Zero();
  ForEachVec(size, [&](int64_t i, int64_t count) {
    const Vec power = Exp(Sub(LoadN(logits + i, count), max));
    StoreN(scratch + i, power, count);
    total = Add(total, KeepLanes(power, 0, static_cast<int>(count), Zero()));
  });
  const float sum = ReduceAdd(total);
  for (int64_t i = 0; i < size; ++i) scratch[i] /= sum;
  float kept = 0;
  for (int64_t k = 0; k < top_k; ++k) {
    // An expert already chosen is -1, below every probability. If logits are NaN no comparison
    // holds and expert 0 stays.
    int64_t best = 0;
    for (int64_t i = 1; i < size; ++i) {
      if (scratch[i] > scratch[best]) best = i;
    }
    expert_ids[k] = static_cast<int32_t>(best);
    weights[k] = scratch[best];
    kept += scratch[best];
    scratch[best] = -1;
  }
  for (int64_t k = 0; renormalize && k < top_k; ++k) weights[k] /= kept;
}

}  // namespace
}  // namespace tandem
