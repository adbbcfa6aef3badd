// 4-bit codes that stand for entries of a table.

#include <cmath>

#include "kernels/blocks/blocks.h"

namespace tandem {
namespace {

// Denser around zero, as weights are.
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
// Twice the numbers of e2m1.
constexpr int8_t kE2m1Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 32 weights.
void ReadCodes(const uint8_t* codes, const int8_t* values, float scale, float* weights) {
  uint8_t entries[32];
  UnpackNibbles(codes, entries);
  for (int i = 0; i < 32; ++i) weights[i] = scale * static_cast<float>(values[entries[i]]);
}

}  // namespace

// d in f16, 16 bytes of codes.
void ReadIq4Nl(const uint8_t* block, float* weights) {
  ReadCodes(block + 2, kIq4Values, HalfAt(block), weights);
}

// d, eight 6-bit scales (two bytes of high bits, four of low nibbles), eight times the codes.
void ReadIq4Xs(const uint8_t* block, float* weights) {
  const float d = HalfAt(block);
  const int high = block[2] | block[3] << 8;
  for (int group = 0; group < 8; ++group) {
    const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
    const int scale = (low | (high >> (2 * group) & 3) << 4) - 32;
    ReadCodes(block + 8 + group * 16, kIq4Values, d * static_cast<float>(scale),
              weights + group * 32);
  }
}

// A power of two, 16 bytes of codes.
void ReadMxfp4(const uint8_t* block, float* weights) {
  ReadCodes(block + 1, kE2m1Values, std::ldexp(0.5f, block[0] - 127), weights);
}

}  // namespace tandem
