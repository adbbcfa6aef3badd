#pragma once

// The functions and tables of the rows in kernels/block_format.cc, and what they share.

#include <cstdint>
#include <cstring>

#include "kernels/block_format.h"
#include "kernels/tensor.h"

namespace tandem {

using ReadBlock = void(const uint8_t* block, BlockCodes* parts);

// Blocks of 32 with a scale and perhaps an offset.
ReadBlock ReadQ4_0, ReadQ4_1, ReadQ5_0, ReadQ5_1, ReadQ8_0;
// Blocks of 256 in groups of 16 or 32, whose scales are integers.
ReadBlock ReadQ2K, ReadQ3K, ReadQ4K, ReadQ5K, ReadQ6K;
// Codes that stand for entries of a table.
ReadBlock ReadIq4Nl, ReadIq4Xs, ReadMxfp4;

// Denser around zero, as weights are.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Twice the numbers of e2m1.
inline constexpr int8_t kE2m1Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 16 for what is no such number.
inline int IndexOfE2m1(int8_t twice) {
  int index = 0;
  while (index < 16 && kE2m1Values[index] != twice) ++index;
  return index;
}

inline uint16_t HalfAt(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof half);
  return half;
}

// The codes of 32 weights in 16 bytes: low halves are those of the first 16, high ones the others'.
inline void UnpackNibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) codes[i] = bytes[i] & 15;
  for (int i = 0; i < 16; ++i) codes[16 + i] = bytes[i] >> 4;
}

}  // namespace tandem
