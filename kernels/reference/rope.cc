#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/op_checks.h"
#include "kernels/reference/reference_ops.h"

namespace tandem {

namespace {

// Normalises (if there is a norm) and rotates one head in place.
void NormAndRotate(float* head, int head_dim, const QkRope& rope, const Tensor& norm,
                   int position) {
  if (!norm.empty()) {
    float sum = 0;
    for (int i = 0; i < head_dim; ++i) sum += head[i] * head[i];
    const float scale = 1 / std::sqrt(sum / static_cast<float>(head_dim) + rope.norm_epsilon);
    for (int i = 0; i < head_dim; ++i) head[i] *= scale * norm.Data<float>()[i];
  }
  const int half = rope.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float cos = rope.cos.Row<float>(position)[i];
    const float sin = rope.sin.Row<float>(position)[i];
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cos - b * sin;
    head[i + half] = b * cos + a * sin;
  }
}

// A head as a cache of this format returns it: itself, or its int8 times their scale.
void Keep(const float* head, int head_dim, KvFormat format, float* kept) {
  float max = 0;
  bool is_finite = true;
  for (int i = 0; i < head_dim; ++i) {
    is_finite = is_finite && std::isfinite(head[i]);
    max = std::max(max, std::abs(head[i]));
  }
  const float inverse = 127 / max;  // infinite when there is nothing to scale
  for (int i = 0; i < head_dim; ++i) {
    kept[i] = format == KvFormat::kCompute ? head[i]
              : !is_finite                 ? NAN
              : !std::isfinite(inverse)    ? 0
                                           : std::nearbyint(head[i] * inverse) * (max / 127);
  }
}

}  // namespace

void ReferenceOps::DoQkNormRopeWriteKv(const Tensor& out, const Tensor& qkv, const QkRope& rope,
                                       const LayerKv& kv, const AttentionPlan& plan) {
  CheckPositionsAndSlots(rope, kv, plan);
  const int dim = kv.head_dim;
  const int num_heads = static_cast<int>(out.shape[1]) / dim;
  std::vector<float> head(dim);
  for (int64_t t = 0; t < plan.num_tokens(); ++t) {
    const int position = plan.batch().positions.Data<int32_t>()[t];
    const int slot = plan.batch().slot_mapping.Data<int32_t>()[t];
    const float* row = qkv.Row<float>(t);
    for (int h = 0; h < num_heads; ++h) {
      float* q = out.Row<float>(t) + h * dim;
      std::copy_n(row + h * dim, dim, q);
      NormAndRotate(q, dim, rope, rope.q_norm, position);
    }
    if (slot < 0) continue;
    for (int h = 0; h < kv.num_kv_heads; ++h) {
      const int64_t offset = ReferenceKvOffset(kv, slot, h);
      std::copy_n(row + (num_heads + h) * dim, dim, head.data());
      NormAndRotate(head.data(), dim, rope, rope.k_norm, position);
      Keep(head.data(), dim, kv.format, static_cast<float*>(kv.k) + offset);
      Keep(row + (num_heads + kv.num_kv_heads + h) * dim, dim, kv.format,
           static_cast<float*>(kv.v) + offset);
    }
  }
}

}  // namespace tandem
