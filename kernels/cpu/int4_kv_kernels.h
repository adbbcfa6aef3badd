#pragma once

// Heads of an int4 cache (kernels/kv_format.h), on the vec_*.h of the including isa_*.cc: rotated
// and rounded to codes when they are written, tiles turned into numbers of the compute type when
// they are read. The layout of a tile is in kernel_table.h.

#include "kernels/cpu/adapter_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/norm_kernels.h"

namespace tandem {
namespace {

// In place. head: whole vectors; lanes beyond dim may hold anything and stay apart.
__attribute__((noinline)) inline void RotateHead(float* head, int64_t dim) {
  const int64_t size = RotationSize(dim);
  int64_t distance = 1;
  for (; distance < size && distance < kVecLanes; distance *= 2) {
    uint32_t partners[kVecLanes];
    float signs[kVecLanes];
    for (int lane = 0; lane < kVecLanes; ++lane) {
      partners[lane] = static_cast<uint32_t>(lane ^ distance);
      signs[lane] = (lane & distance) == 0 ? 1.0f : -1.0f;
    }
    const Units partner = LoadUnits(partners);
    const Vec sign = Load(signs);
    for (int64_t i = 0; i < dim; i += kVecLanes) {
      Store(head + i, Fma(Load(head + i), sign, LookUpFloats(partner, head + i)));
    }
  }
  for (; distance < size; distance *= 2) {
    for (int64_t i = 0; i < dim; i += 2 * distance) {
      for (int64_t j = i; j < i + distance; j += kVecLanes) {
        const Vec a = Load(head + j), b = Load(head + j + distance);
        Store(head + j, Add(a, b));
        Store(head + j + distance, Sub(a, b));
      }
    }
  }
  const Vec scale = Set1(1 / __builtin_sqrtf(static_cast<float>(size)));
  for (int64_t i = 0; i < dim; i += kVecLanes) Store(head + i, Mul(Load(head + i), scale));
}

// The same of a row of the compute type, padded_dim numbers.
template <class Element>
__attribute__((noinline)) void RotateRow(Element* row, int64_t dim, int64_t padded_dim) {
  alignas(64) float head[kMaxHeadDim];
  for (int64_t i = 0; i < padded_dim; i += kVecLanes) Store(head + i, Load(row + i));
  RotateHead(head, dim);
  for (int64_t i = 0; i < padded_dim; i += kVecLanes) Store(row + i, Load(head + i));
}

// bf16 in the high half of a word.
inline float HighHalf(uint32_t word) {
  word &= 0xffff0000;
  float value;
  __builtin_memcpy(&value, &word, sizeof(value));
  return value;
}
inline uint32_t RoundToBf16(float value) {
  uint16_t bits;
  StoreN(&bits, Set1(value), 1);
  return bits;
}

// The codes of a group's `count` numbers, kInt4Group of them, and its word; NaN for numbers that
// are not finite.
inline uint32_t EncodeInt4Group(const float* x, int64_t count, int8_t* codes) {
  constexpr int kVecs = kInt4Group / kVecLanes;
  static_assert(kVecs == 2);
  Vec part[kVecs];
  Vec bits = Zero();
  for (int v = 0; v < kVecs; ++v) {
    const int64_t left = count - v * kVecLanes;
    const int lanes = left < 0 ? 0 : left < kVecLanes ? static_cast<int>(left) : kVecLanes;
    part[v] = KeepLanes(LoadN(x + v * kVecLanes, lanes), 0, lanes, Set1(x[0]));
    bits = MaxAbsBits(bits, part[v]);
  }
  const float max = ReduceMax(Max(part[0], part[1]));
  const float min = -ReduceMax(Max(Sub(Zero(), part[0]), Sub(Zero(), part[1])));
  const uint32_t base_bits = RoundToBf16(min);
  const float base = HighHalf(base_bits << 16);
  const float range = max > base ? max - base : 0;  // base may be rounded up
  const uint32_t step_bits = RoundToBf16(range / 15);
  const float step = HighHalf(step_bits << 16);
  const bool is_usable =
      MaxOfBits(bits) <= __FLT_MAX__ && base >= -__FLT_MAX__ && step <= __FLT_MAX__;
  const float exact = 1 / step;
  const Vec inverse = Set1(is_usable && exact <= __FLT_MAX__ ? exact : 0);
  for (int v = 0; v < kVecs; ++v) {
    const Vec code = RoundToInt(Mul(Sub(part[v], Set1(base)), inverse));
    StoreBytes(codes + v * kVecLanes, is_usable ? Min(Max(code, Zero()), Set1(15)) : Zero());
  }
  return is_usable ? base_bits << 16 | step_bits : 0x7fc07fc0;
}

// Writes a token's head to its places in a tile. head: whole vectors.
inline void WriteInt4Head(const float* head, int64_t dim, int64_t padded_dim, int64_t in_tile,
                          bool is_k, uint8_t* tile) {
  alignas(64) float rotated[kMaxHeadDim];
  for (int64_t i = 0; i < dim; ++i) rotated[i] = head[i];
  for (int64_t i = dim; i < padded_dim; ++i) rotated[i] = 0;
  RotateHead(rotated, dim);
  const int64_t token_bytes = Int4TokenBytes(padded_dim);
  auto* words = reinterpret_cast<uint32_t*>(tile + kTileTokens * token_bytes);
  for (int64_t g = 0; g < Int4NumGroups(padded_dim); ++g) {
    const int64_t first = g * kInt4Group, left = dim - first;
    int8_t codes[kInt4Group];
    words[g * kTileTokens + in_tile] =
        EncodeInt4Group(rotated + first, left < kInt4Group ? left : kInt4Group, codes);
    for (int64_t i = 0; i < kInt4Group / 2; ++i) {
      if (is_k) {
        tile[(first / 2 + i) * kTileTokens + in_tile] =
            static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
      } else {
        tile[in_tile * token_bytes + first / 2 + i] =
            static_cast<uint8_t>(codes[i] | codes[kInt4Group / 2 + i] << 4);
      }
    }
  }
}

// What 16 bytes of codes stand for.
struct Int4Numbers {
  Vec low, high;
};
inline Int4Numbers LoadInt4s(const uint8_t* codes, Vec step, Vec base) {
  const Units bytes = WidenBytes(codes);
  const auto number = [&](Units code) { return Fma(FromInts(FloatsOf(code), 0), step, base); };
  return {number(AndUnits(bytes, 15)), number(ShiftRight(bytes, 4))};
}

// A K tile as numbers, [padded_dim / kStep][32 tokens][kStep].
template <class Type>
__attribute__((noinline)) void WidenInt4Keys(const uint8_t* tile, int64_t padded_dim,
                                             typename Type::Element* numbers) {
  const auto* words =
      reinterpret_cast<const uint32_t*>(tile + kTileTokens * Int4TokenBytes(padded_dim));
  for (int64_t i = 0; i < padded_dim / 2;) {
    const int64_t group = 2 * i / kInt4Group, end = (group + 1) * kInt4Group / 2;
    const int64_t group_end = end < padded_dim / 2 ? end : padded_dim / 2;
    for (int t = 0; t < kTileTokens; t += kVecLanes) {
      const Units word = LoadUnits(words + group * kTileTokens + t);
      const Vec step = FloatsOf(ShiftLeft(word, 16)), base = FloatsOf(AndUnits(word, 0xffff0000));
      for (int64_t row = i; row < group_end; ++row) {
        const Int4Numbers x = LoadInt4s(tile + row * kTileTokens + t, step, base);
        if constexpr (Type::kStep == 2) {
          StoreUnits(reinterpret_cast<uint32_t*>(numbers) + row * kTileTokens + t,
                     Bf16Pairs(x.low, x.high));
        } else {
          Store(numbers + 2 * row * kTileTokens + t, x.low);
          Store(numbers + (2 * row + 1) * kTileTokens + t, x.high);
        }
      }
    }
    i = group_end;
  }
}

// A V tile, [32 tokens / kStep][padded_dim][kStep].
template <class Type>
__attribute__((noinline)) void WidenInt4Values(const uint8_t* tile, int64_t padded_dim,
                                               typename Type::Element* numbers) {
  const int64_t token_bytes = Int4TokenBytes(padded_dim);
  const auto* words = reinterpret_cast<const uint32_t*>(tile + kTileTokens * token_bytes);
  for (int64_t first = 0; first < padded_dim; first += kInt4Group) {
    const uint32_t* const group = words + first / kInt4Group * kTileTokens;
    const bool is_whole = first + kInt4Group <= padded_dim;
    const auto load = [&](int t) {
      return LoadInt4s(tile + t * token_bytes + first / 2, Set1(HighHalf(group[t] << 16)),
                       Set1(HighHalf(group[t])));
    };
    for (int t = 0; t < kTileTokens; t += Type::kStep) {
      const Int4Numbers x = load(t);
      if constexpr (Type::kStep == 2) {
        const Int4Numbers next = load(t + 1);
        auto* to = reinterpret_cast<uint32_t*>(numbers) + t / 2 * padded_dim + first;
        StoreUnits(to, Bf16Pairs(x.low, next.low));
        if (is_whole) StoreUnits(to + kVecLanes, Bf16Pairs(x.high, next.high));
      } else {
        Store(numbers + t * padded_dim + first, x.low);
        if (is_whole) Store(numbers + t * padded_dim + first + kVecLanes, x.high);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
