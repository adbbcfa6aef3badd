#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/float8.h"
#include "kernels/op_checks.h"
#include "kernels/reference/reference_ops.h"

namespace tandem {

namespace {

void Norm(float* head, int head_dim, const Tensor& norm, float epsilon) {
  if (norm.empty()) return;
  float sum = 0;
  for (int i = 0; i < head_dim; ++i) sum += head[i] * head[i];
  const float scale = 1 / std::sqrt(sum / static_cast<float>(head_dim) + epsilon);
  for (int i = 0; i < head_dim; ++i) head[i] *= scale * norm.Data<float>()[i];
}

void Rotate(float* head, const QkRope& rope, int position) {
  const int half = rope.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float cos = rope.cos.Row<float>(position)[i];
    const float sin = rope.sin.Row<float>(position)[i];
    float& first = head[rope.is_interleaved ? 2 * i : i];
    float& second = head[rope.is_interleaved ? 2 * i + 1 : i + half];
    const float a = first, b = second;
    first = a * cos - b * sin;
    second = b * cos + a * sin;
  }
}

// Normalises (if there is a norm) and rotates one head in place.
void NormAndRotate(float* head, int head_dim, const QkRope& rope, const Tensor& norm,
                   int position) {
  if (!rope.norms_after_rope) Norm(head, head_dim, norm, rope.norm_epsilon);
  Rotate(head, rope, position);
  if (rope.norms_after_rope) Norm(head, head_dim, norm, rope.norm_epsilon);
}

// head times the matrix of kernels/kv_format.h.
std::vector<float> Rotated(const float* head, int head_dim) {
  const auto size = static_cast<int>(RotationSize(head_dim));
  const float root = std::sqrt(static_cast<float>(size));
  std::vector<float> rotated(static_cast<size_t>(head_dim));
  for (int i = 0; i < head_dim; ++i) {
    const float* run = head + i / size * size;
    float sum = 0;
    for (int j = 0; j < size; ++j) {
      const auto shared = static_cast<uint32_t>(i % size & j);
      sum += std::popcount(shared) % 2 == 0 ? run[j] : -run[j];
    }
    rotated[static_cast<size_t>(i)] = sum / root;
  }
  return rotated;
}

float RoundedToBf16(float value) { return ToFloat(ToBf16(value)); }

// A group of numbers becomes what its codes stand for.
void RoundGroup(float* group, int64_t count) {
  const auto [min, max] = std::minmax_element(group, group + count);
  const float base = RoundedToBf16(*min);
  const float step = RoundedToBf16(std::max(0.0f, *max - base) / 15);
  bool is_finite = std::isfinite(base) && std::isfinite(step);
  for (int64_t i = 0; i < count; ++i) is_finite = is_finite && std::isfinite(group[i]);
  const float inverse = std::isfinite(1 / step) ? 1 / step : 0;
  for (int64_t i = 0; i < count; ++i) {
    const float code = std::clamp(std::nearbyint((group[i] - base) * inverse), 0.0f, 15.0f);
    group[i] = is_finite ? base + code * step : NAN;
  }
}

// A head as a cache of this format returns it: itself, its e4m3 times the layer's scale, its int8
// times their scale, or what the codes of its rotation stand for, rotated back.
void Keep(const float* head, int head_dim, KvFormat format, float scale, float* kept) {
  if (format == KvFormat::kInt4) {
    std::vector<float> rotated = Rotated(head, head_dim);
    for (int64_t i = 0; i < head_dim; i += kInt4Group) {
      RoundGroup(rotated.data() + i, std::min<int64_t>(kInt4Group, head_dim - i));
    }
    std::ranges::copy(Rotated(rotated.data(), head_dim), kept);
    return;
  }
  if (format == KvFormat::kFloat8) {
    for (int i = 0; i < head_dim; ++i) {
      kept[i] = Float8ToFloat(FloatToFloat8(head[i] / scale)) * scale;
    }
    return;
  }
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

// Rotates pe in place.
void RotatePe(float* pe, const LatentRope& rope, int position) {
  if (rope.cos.empty()) return;
  const int half = rope.pe_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float cos = rope.cos.Row<float>(position)[i];
    const float sin = rope.sin.Row<float>(position)[i];
    float& first = pe[rope.is_interleaved ? 2 * i : i];
    float& second = pe[rope.is_interleaved ? 2 * i + 1 : i + half];
    const float a = first, b = second;
    first = a * cos - b * sin;
    second = b * cos + a * sin;
  }
}

void NormC(float* c, int64_t size, const LatentRope& rope) {
  float sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += c[i] * c[i];
  const float scale = 1 / std::sqrt(sum / static_cast<float>(size) + rope.norm_epsilon);
  for (int64_t i = 0; i < size; ++i) c[i] *= scale * rope.norm.Data<float>()[i];
}

}  // namespace

void ReferenceOps::DoLatentRopeWriteKv(const Tensor& out, const Tensor& q, const Tensor& latent,
                                       const LatentRope& rope, const LayerKv& kv,
                                       const AttentionPlan& plan) {
  CheckPositionsAndSlots(rope.cos, kv, plan);
  const int index_dim = rope.index_key.empty() ? 0 : static_cast<int>(rope.index_key.shape[1]);
  const int dim = kv.head_dim - index_dim, pe_dim = rope.pe_dim;
  const int64_t num_heads = out.shape[1] / dim, q_dim = q.shape[1] / num_heads;
  std::vector<float> key(static_cast<size_t>(kv.head_dim));
  for (int64_t t = 0; t < plan.num_tokens(); ++t) {
    const int position = plan.batch().positions.Data<int32_t>()[t];
    const int slot = plan.batch().slot_mapping.Data<int32_t>()[t];
    for (int64_t h = 0; h < num_heads; ++h) {
      float* pe = out.Row<float>(t) + (h + 1) * dim - pe_dim;
      std::copy_n(q.Row<float>(t) + (h + 1) * q_dim - pe_dim, pe_dim, pe);
      RotatePe(pe, rope, position);
    }
    if (slot < 0) continue;
    std::copy_n(latent.Row<float>(t), dim, key.data());
    NormC(key.data(), dim - pe_dim, rope);
    RotatePe(key.data() + dim - pe_dim, rope, position);
    if (index_dim > 0) std::copy_n(rope.index_key.Row<float>(t), index_dim, key.data() + dim);
    Keep(key.data(), kv.head_dim, kv.format, kv.k_scale,
         static_cast<float*>(kv.k) + ReferenceKvOffset(kv, slot, 0));
  }
}

void ReferenceOps::DoQkNormRopeWriteKv(const Tensor& out, const Tensor& qkv, const QkRope& rope,
                                       const LayerKv& kv, const AttentionPlan& plan) {
  CheckPositionsAndSlots(rope.rotary_dim == 0 ? Tensor() : rope.cos, kv, plan, rope.rows);
  const int dim = kv.head_dim;
  const int num_heads = static_cast<int>(out.shape[1]) / dim;
  const Tensor& rows = rope.rows.empty() ? plan.batch().positions : rope.rows;
  std::vector<float> head(dim);
  for (int64_t t = 0; t < plan.num_tokens(); ++t) {
    const int position = rows.Data<int32_t>()[t];
    const int slot = plan.batch().slot_mapping.Data<int32_t>()[t];
    const float* row = qkv.Row<float>(t);
    for (int h = 0; h < num_heads; ++h) {
      float* q = out.Row<float>(t) + h * dim;
      std::copy_n(row + h * dim, dim, q);
      NormAndRotate(q, dim, rope, rope.q_norm, position);
      const float scale = rope.q_scale.empty() ? 1 : rope.q_scale.Data<float>()[position];
      for (int i = 0; i < dim; ++i) q[i] *= scale;
    }
    if (slot < 0 || rope.is_of_q_alone) continue;
    for (int h = 0; h < kv.num_kv_heads; ++h) {
      const int64_t offset = ReferenceKvOffset(kv, slot, h);
      std::copy_n(row + (num_heads + h) * dim, dim, head.data());
      NormAndRotate(head.data(), dim, rope, rope.k_norm, position);
      Keep(head.data(), dim, kv.format, kv.k_scale, static_cast<float*>(kv.k) + offset);
      Keep(row + (num_heads + kv.num_kv_heads + h) * dim, dim, kv.format, kv.v_scale,
           static_cast<float*>(kv.v) + offset);
    }
  }
}

}  // namespace tandem
