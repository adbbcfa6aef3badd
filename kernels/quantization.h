#pragma once

// How a row of weights becomes integers, the same in every backend.
//
// Both formats are one integer in [-128, 127] per weight times one scale per row; int4 stores such
// integers in 4 bits: within a group of consecutive k they are (code - zero) * factor, with code,
// zero and factor in 0 .. 15. So both run on the same integer products, without a float between
// groups, and a sum of products is exact in any order.
// Thread: any. Units: k counts weights. No failure: rows are finite (others give an infinite or NaN
// scale, as their products would be).

#include <cstdint>
#include <span>

#include "kernels/matrix_source.h"
#include "kernels/packed_matrix.h"

namespace tandem {

// Weights that share a zero and a factor; 0: the format has no groups.
constexpr int64_t GroupSize(WeightFormat format) {
  return format == WeightFormat::kInt4Group32    ? 32
         : format == WeightFormat::kInt4Group128 ? 128
                                                 : 0;
}

// The longest row whose product with activations in [-127, 127] stays exact in int32, and their sum
// in float32.
inline constexpr int64_t kMaxQuantizedDepth = int64_t{1} << 17;

// integers[i] = row[i] / scale to the nearest (ties to even), in [-127, 127]; returns the scale,
// max |row| / 127.
float QuantizeInt8(std::span<const float> row, int8_t* integers);

// Row n in that form, in room for one row of floats: int8 rows as they are stored, others
// quantized.
float ReadInt8(const StackedRows& rows, int64_t n, std::span<float> room, int8_t* integers);

struct Int4Group {
  uint8_t bits = 0;  // factor | zero << 4
  int factor() const { return bits & 15; }
  int zero() const { return bits >> 4; }
};

// Codes (one per byte) and ceil(k / group_size) groups; returns the scale, max |row| / 112: wide
// groups then need no factor above 15.
float QuantizeInt4(std::span<const float> row, int64_t group_size, uint8_t* codes,
                   Int4Group* groups);

}  // namespace tandem
