#pragma once

// Row reductions over logits, on the vec_*.h of the including isa_*.cc.

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

int64_t Argmax(const float* x, int64_t size) {
  const float max = MaxOf(x, size);
  for (int64_t i = 0; i < size; ++i) {
    if (x[i] == max) return i;
  }
  return 0;  // nothing but NaN
}

float LogSumExp(const float* x, int64_t size) {
  const float max = MaxOf(x, size);
  Vec sum = Zero();
  ForEachVec(size, [&](int64_t i, int64_t count) {
    const Vec power = Exp(Sub(LoadN(x + i, count), Set1(max)));
    sum = Add(sum, KeepLanes(power, 0, static_cast<int>(count), Zero()));
  });
  return max + __builtin_logf(ReduceAdd(sum));
}

}  // namespace
}  // namespace tandem
