#pragma once

// One row of TopKSoftmax (kernels/backend.h), for backends whose memory the host can read: the
// experts of a layer are few, so plain loops serve all of them.
// Thread: any. weights may not be logits. NaN logits are never chosen before numbers.

#include <cmath>
#include <cstdint>

namespace tandem {

inline void TopKSoftmaxRow(const float* logits, int64_t size, int k, bool renormalize,
                           float* weights) {
  float max = -INFINITY;
  for (int64_t e = 0; e < size; ++e) max = logits[e] > max ? logits[e] : max;
  float total = 0;
  for (int64_t e = 0; e < size; ++e) total += std::exp(logits[e] - max);

  for (int64_t e = 0; e < size; ++e) weights[e] = 0;
  float chosen = 0;
  for (int i = 0; i < k; ++i) {
    int64_t best = -1;
    for (int64_t e = 0; e < size; ++e) {
      if (weights[e] == 0 && (best < 0 || logits[e] > logits[best])) best = e;
    }
    if (best < 0) return;
    weights[best] = std::exp(logits[best] - max) / total;
    chosen += weights[best];
  }
  if (!renormalize) return;
  for (int64_t e = 0; e < size; ++e) weights[e] /= chosen;
}

}  // namespace tandem
