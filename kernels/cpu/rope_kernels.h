#pragma once

// QK norm, RoPE and the KV write of one token and one KV head (its query heads with it), on the
// vec_*.h of the including isa_*.cc.

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/norm_kernels.h"

namespace tandem {
namespace {

constexpr int kMaxHeadDim = 512;  // MakeAttentionPlan and AllocateKvCache refuse more

template <class X>
inline void LoadHead(const X* x, const RopeTask& task, const float* norm, float* head) {
  const int64_t dim = task.head_dim;
  if (norm != nullptr) {
    RmsNormRow(x, norm, task.epsilon, dim, head);
  } else {
    ForEachVec(dim,
               [&](int64_t i, int64_t count) { StoreN(head + i, LoadN(x + i, count), count); });
  }
}

inline void Rotate(float* head, const RopeTask& task, int64_t position) {
  const int64_t half = task.rotary_dim / 2;
  ForEachVec(half, [&](int64_t i, int64_t count) {
    const Vec cos = LoadN(task.cos + position * half + i, count);
    const Vec sin = LoadN(task.sin + position * half + i, count);
    const Vec a = LoadN(head + i, count);
    const Vec b = LoadN(head + half + i, count);
    StoreN(head + i, Sub(Mul(a, cos), Mul(b, sin)), count);
    StoreN(head + half + i, Fma(b, cos, Mul(a, sin)), count);
  });
}

template <class Type, class X>
void RopeHeads(const RopeTask& task, const X* row, int64_t token, int kv_head) {
  using Element = typename Type::Element;
  const int64_t dim = task.head_dim;
  const int group = task.num_heads / task.num_kv_heads;
  const int64_t position = task.positions[token];
  alignas(64) float head[kMaxHeadDim];
  alignas(64) Element narrow[kMaxHeadDim];

  for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    LoadHead(row + h * dim, task, task.q_norm, head);
    Rotate(head, task, position);
    Element* out = static_cast<Element*>(task.out) + token * task.out_stride + h * dim;
    ForEachVec(dim, [&](int64_t i, int64_t n) { StoreN(out + i, LoadN(head + i, n), n); });
  }

  const int64_t slot = task.slots[token];
  if (slot < 0) return;
  const int64_t tile_units = int64_t{kTileTokens} / Type::kStep * task.padded_dim;
  const int64_t tile = slot / kTileTokens * task.num_kv_heads + kv_head;
  const int64_t in_tile = slot % kTileTokens;

  LoadHead(row + (task.num_heads + kv_head) * dim, task, task.k_norm, head);
  Rotate(head, task, position);
  ForEachVec(dim, [&](int64_t i, int64_t n) { StoreN(narrow + i, LoadN(head + i, n), n); });
  auto* k = reinterpret_cast<Element*>(task.k + tile * tile_units);
  for (int64_t i = 0; i < dim; ++i) {
    k[(i / Type::kStep * kTileTokens + in_tile) * Type::kStep + i % Type::kStep] = narrow[i];
  }

  LoadHead(row + (task.num_heads + task.num_kv_heads + kv_head) * dim, task, nullptr, head);
  ForEachVec(dim, [&](int64_t i, int64_t n) { StoreN(narrow + i, LoadN(head + i, n), n); });
  auto* v = reinterpret_cast<Element*>(task.v + tile * tile_units) +
            in_tile / Type::kStep * task.padded_dim * Type::kStep + in_tile % Type::kStep;
  for (int64_t i = 0; i < dim; ++i) v[i * Type::kStep] = narrow[i];
}

template <class Type>
void Rope(const RopeTask& task, int64_t token, int kv_head) {
  if (task.qkv_is_f32) {
    RopeHeads<Type>(task, static_cast<const float*>(task.qkv) + token * task.qkv_stride, token,
                    kv_head);
  } else {
    RopeHeads<Type>(task,
                    static_cast<const typename Type::Element*>(task.qkv) + token * task.qkv_stride,
                    token, kv_head);
  }
}

}  // namespace
}  // namespace tandem
