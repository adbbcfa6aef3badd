#pragma once

// QK norm, RoPE and the KV write of one token, one KV head and its query heads, on the vec_*.h of
// the including isa_*.cc.

#include "kernels/cpu/int4_kv_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/norm_kernels.h"
#include "kernels/float8.h"

namespace tandem {
namespace {

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

// Moves pairs of neighbours into two halves, or back.
inline void SplitPairs(const float* pairs, int64_t half, float* halves) {
  for (int64_t i = 0; i < half; ++i) {
    halves[i] = pairs[2 * i];
    halves[half + i] = pairs[2 * i + 1];
  }
}
inline void JoinPairs(const float* halves, int64_t half, float* pairs) {
  for (int64_t i = 0; i < half; ++i) {
    pairs[2 * i] = halves[i];
    pairs[2 * i + 1] = halves[half + i];
  }
}

inline void RotateHalves(float* head, const RopeTask& task, int64_t position) {
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

inline void Rotate(float* head, const RopeTask& task, int64_t position) {
  if (!task.is_interleaved) return RotateHalves(head, task, position);
  alignas(64) float halves[kMaxHeadDim];
  SplitPairs(head, task.rotary_dim / 2, halves);
  RotateHalves(halves, task, position);
  JoinPairs(halves, task.rotary_dim / 2, head);
}

// Of q or k: normed where there is a norm, and rotated.
template <class X>
inline void LoadRotated(const X* x, const RopeTask& task, const float* norm, int64_t position,
                        float* head) {
  LoadHead(x, task, task.norms_after_rope ? nullptr : norm, head);
  Rotate(head, task, position);
  if (!task.norms_after_rope || norm == nullptr) return;
  RmsNormRow(head, norm, task.epsilon, task.head_dim, head);
}

// The int8 of a head, returning their scale; for a head that is not finite zeros and NaN.
inline float QuantizeHead(const float* head, int64_t dim, int8_t* bytes) {
  Vec max_bits = Zero();
  ForEachVec(dim, [&](int64_t i, int64_t count) {
    max_bits = MaxAbsBits(max_bits, LoadN(head + i, count));
  });
  const float max = MaxOfBits(max_bits);
  const float inverse = 127 / max;  // infinite when there is nothing to scale
  const bool is_usable = max <= __FLT_MAX__ && inverse <= __FLT_MAX__;
  ForEachVec(dim, [&](int64_t i, int64_t count) {
    StoreBytes(bytes + i,
               is_usable ? RoundToInt(Mul(LoadN(head + i, count), Set1(inverse))) : Zero());
  });
  return is_usable ? max / 127 : max <= __FLT_MAX__ ? 0 : __builtin_nanf("");
}

// Writes a head's numbers to their places in a tile: K [padded_dim / kStep][32 tokens][kStep],
// V [32 tokens / kStep][padded_dim][kStep]. Those after head_dim are zeros: the block may have been
// another group's, and its bytes, read as numbers, infinite.
template <class Type, class Number>
inline void Scatter(const Number* numbers, const RopeTask& task, int64_t in_tile, bool is_k,
                    Number* tile) {
  constexpr int64_t kStep = Type::kStep;
  const int64_t dim = task.head_dim, padded = task.padded_dim;
  if (is_k) {
    const auto place = [&](int64_t i) -> Number& {
      return tile[(i / kStep * kTileTokens + in_tile) * kStep + i % kStep];
    };
    for (int64_t i = 0; i < dim; ++i) place(i) = numbers[i];
    for (int64_t i = dim; i < padded; ++i) place(i) = Number{};
    return;
  }
  tile += in_tile / kStep * padded * kStep + in_tile % kStep;
  for (int64_t i = 0; i < dim; ++i) tile[i * kStep] = numbers[i];
  for (int64_t i = dim; i < padded; ++i) tile[i * kStep] = Number{};
}

template <class Type>
void WriteKv(const RopeTask& task, const float* head, int64_t slot, int kv_head, bool is_k) {
  using Element = typename Type::Element;
  const int64_t tile_numbers = int64_t{kTileTokens} * task.padded_dim;
  const int64_t tile = slot / kTileTokens * task.num_kv_heads + kv_head;
  const int64_t in_tile = slot % kTileTokens;
  void* cache = is_k ? task.k : task.v;
  if (task.kv_format == KvFormat::kFloat8) {
    alignas(64) uint8_t codes[kMaxHeadDim];
    const float scale = is_k ? task.k_scale : task.v_scale;
    for (int64_t i = 0; i < task.head_dim; ++i) codes[i] = FloatToFloat8(head[i] / scale);
    auto* to = static_cast<uint8_t*>(cache) + tile * Float8TileBytes(task.padded_dim);
    Scatter<Type>(codes, task, in_tile, is_k, to);
    return;
  }
  if (task.kv_format == KvFormat::kInt8) {
    alignas(64) int8_t bytes[kMaxHeadDim];
    auto* to = static_cast<int8_t*>(cache) + tile * Int8TileBytes(task.padded_dim);
    reinterpret_cast<float*>(to + tile_numbers)[in_tile] = QuantizeHead(head, task.head_dim, bytes);
    Scatter<Type>(bytes, task, in_tile, is_k, to);
    return;
  }
  if (task.kv_format == KvFormat::kInt4) {
    auto* to = static_cast<uint8_t*>(cache) + tile * Int4TileBytes(task.padded_dim);
    WriteInt4Head(head, task.head_dim, task.padded_dim, in_tile, is_k, to);
    return;
  }
  alignas(64) Element narrow[kMaxHeadDim];
  ForEachVec(task.head_dim,
             [&](int64_t i, int64_t n) { StoreN(narrow + i, LoadN(head + i, n), n); });
  Scatter<Type>(narrow, task, in_tile, is_k, static_cast<Element*>(cache) + tile * tile_numbers);
}

template <class Type, class X>
void RopeHeads(const RopeTask& task, const X* row, int64_t token, int kv_head) {
  using Element = typename Type::Element;
  const int64_t dim = task.head_dim;
  const int group = task.num_heads / task.num_kv_heads;
  const int64_t position = task.positions[token];
  alignas(64) float head[kMaxHeadDim];

  for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    LoadRotated(row + h * dim, task, task.q_norm, position, head);
    if (task.q_scale != nullptr) {
      const Vec scale = Set1(task.q_scale[position]);
      ForEachVec(
          dim, [&](int64_t i, int64_t n) { StoreN(head + i, Mul(LoadN(head + i, n), scale), n); });
    }
    Element* out = static_cast<Element*>(task.out) + token * task.out_stride + h * dim;
    ForEachVec(dim, [&](int64_t i, int64_t n) { StoreN(out + i, LoadN(head + i, n), n); });
  }

  const int64_t slot = task.slots[token];
  if (slot < 0 || task.is_of_q_alone) return;
  LoadRotated(row + (task.num_heads + kv_head) * dim, task, task.k_norm, position, head);
  WriteKv<Type>(task, head, slot, kv_head, /*is_k=*/true);
  LoadHead(row + (task.num_heads + task.num_kv_heads + kv_head) * dim, task, nullptr, head);
  WriteKv<Type>(task, head, slot, kv_head, /*is_k=*/false);
}

// Copies pe from x to head, rotated. Neighbours are brought apart for it where they are pairs.
template <class X>
void LoadPe(const X* x, const LatentTask& task, int64_t position, float* head) {
  const RopeTask& angles = task.key;
  const int64_t dim = task.pe_dim, half = dim / 2;
  if (angles.cos == nullptr || !task.is_interleaved) {
    ForEachVec(dim,
               [&](int64_t i, int64_t count) { StoreN(head + i, LoadN(x + i, count), count); });
    if (angles.cos != nullptr) Rotate(head, angles, position);
    return;
  }
  alignas(64) float wide[kMaxHeadDim];
  alignas(64) float apart[kMaxHeadDim];
  ForEachVec(dim, [&](int64_t i, int64_t count) { StoreN(wide + i, LoadN(x + i, count), count); });
  for (int64_t i = 0; i < half; ++i) {
    apart[i] = wide[2 * i];
    apart[half + i] = wide[2 * i + 1];
  }
  Rotate(apart, angles, position);
  for (int64_t i = 0; i < half; ++i) {
    head[2 * i] = apart[i];
    head[2 * i + 1] = apart[half + i];
  }
}

// Latent attention: pe of the query heads, and the latent to the cache.
template <class Type>
void LatentRopeHeads(const LatentTask& task, int64_t token) {
  using Element = typename Type::Element;
  const RopeTask& key = task.key;
  const int64_t dim = key.head_dim - task.index_dim, c_dim = dim - task.pe_dim;
  const int64_t position = key.positions[token];
  alignas(64) float head[kMaxHeadDim];
  const auto* q = static_cast<const Element*>(task.q) + token * task.q_stride;
  auto* out = static_cast<Element*>(task.out) + token * task.out_stride;
  for (int h = 0; h < task.num_heads; ++h) {
    LoadPe(q + (h + 1) * task.q_dim - task.pe_dim, task, position, head);
    Element* to = out + h * dim + c_dim;
    ForEachVec(task.pe_dim, [&](int64_t i, int64_t n) { StoreN(to + i, LoadN(head + i, n), n); });
  }
  const int64_t slot = key.slots[token];
  if (slot < 0) return;
  const auto* latent = static_cast<const Element*>(task.latent) + token * task.latent_stride;
  RmsNormRow(latent, key.k_norm, key.epsilon, c_dim, head);
  LoadPe(latent + c_dim, task, position, head + c_dim);
  if (task.index_dim > 0) {
    const auto* index_key =
        static_cast<const Element*>(task.index_key) + token * task.index_key_stride;
    ForEachVec(task.index_dim,
               [&](int64_t i, int64_t n) { StoreN(head + dim + i, LoadN(index_key + i, n), n); });
  }
  WriteKv<Type>(key, head, slot, 0, /*is_k=*/true);
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
