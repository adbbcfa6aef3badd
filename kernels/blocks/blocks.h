#pragma once

// The functions of the rows in kernels/block_format.cc, and what they share.

#include <cstdint>
#include <cstring>

#include "kernels/tensor.h"

namespace tandem {

using ReadBlock = void(const uint8_t* block, float* weights);

// Blocks of 32 with a scale and perhaps an offset.
ReadBlock ReadQ4_0, ReadQ4_1, ReadQ5_0, ReadQ5_1, ReadQ8_0;
// Blocks of 256 in groups of 16 or 32, whose scales are integers.
ReadBlock ReadQ2K, ReadQ3K, ReadQ4K, ReadQ5K, ReadQ6K;
// Codes that stand for entries of a table.
ReadBlock ReadIq4Nl, ReadIq4Xs, ReadMxfp4;

inline float HalfAt(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof half);
  return HalfToFloat(half);
}

// The codes of 32 weights in 16 bytes: low halves are those of the first 16, high ones the others'.
inline void UnpackNibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) codes[i] = bytes[i] & 15;
  for (int i = 0; i < 16; ++i) codes[16 + i] = bytes[i] >> 4;
}

}  // namespace tandem
