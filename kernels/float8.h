#pragma once

// e4m3 without infinities (float8_e4m3fn): numbers of weights, their scales and the KV cache.
// Pure; any thread. Static, because kernels of several instruction sets include it: a function of
// theirs must not be taken for another file's.

#include <cstdint>

namespace tandem {

inline constexpr float kMaxFloat8 = 448;

[[maybe_unused]] static constexpr bool IsFloat8Nan(uint8_t code) { return (code & 0x7f) == 0x7f; }

// Exponent and mantissa stand where float32 has them, short of its bias: a product with 2^120
// makes up for it, also for denormals.
[[maybe_unused]] static constexpr float Float8ToFloat(uint8_t code) {
  const uint32_t magnitude = (code & 0x7fu) << 20, sign = (code & 0x80u) << 24;
  const float number = __builtin_bit_cast(float, magnitude) * 0x1p120f;
  const uint32_t bits = IsFloat8Nan(code) ? 0x7fc00000u : __builtin_bit_cast(uint32_t, number);
  return __builtin_bit_cast(float, bits | sign);
}

// To the nearest, ties to even; beyond 448 it is 448. NaN stays NaN.
[[maybe_unused]] static constexpr uint8_t FloatToFloat8(float value) {
  const uint32_t all = __builtin_bit_cast(uint32_t, value);
  const auto sign = static_cast<uint8_t>(all >> 24 & 0x80);
  const float size = __builtin_bit_cast(float, all & 0x7fffffffu);
  if (value != value) return sign | 0x7f;
  const float magnitude = size < kMaxFloat8 ? size : kMaxFloat8;
  // Below 2^-6 the spacing is 2^-9; a sum with 2^23 is rounded to integers.
  if (magnitude < 0x1p-6f) {
    return sign | static_cast<uint8_t>((magnitude * 0x1p9f + 0x1p23f) - 0x1p23f);
  }
  const auto bits = __builtin_bit_cast(uint32_t, magnitude);
  const uint32_t rounded = bits + 0x7ffff + (bits >> 20 & 1);
  return sign | static_cast<uint8_t>((rounded >> 20) - (120u << 3));
}

}  // namespace tandem
