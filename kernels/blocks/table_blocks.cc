// 4-bit codes that stand for entries of a table.

#include "kernels/blocks/blocks.h"

namespace tandem {

// d in f16, 16 bytes of codes.
void ReadIq4Nl(const uint8_t* block, BlockCodes* parts) {
  parts->scale = HalfAt(block);
  UnpackNibbles(block + 2, parts->codes);
}

// d, eight 6-bit scales (two bytes of high bits, four of low nibbles), eight times the codes.
void ReadIq4Xs(const uint8_t* block, BlockCodes* parts) {
  parts->scale = HalfAt(block);
  const int high = block[2] | block[3] << 8;
  for (int group = 0; group < 8; ++group) {
    const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
    const int scale = (low | (high >> (2 * group) & 3) << 4) - 32;
    parts->group_scales[group] = static_cast<uint8_t>(scale);
    UnpackNibbles(block + 8 + group * 16, parts->codes + group * 32);
  }
}

// The exponent of a power of two plus 127, 16 bytes of codes for twice the numbers.
void ReadMxfp4(const uint8_t* block, BlockCodes* parts) {
  parts->group_scales[0] = block[0];
  UnpackNibbles(block + 1, parts->codes);
}

}  // namespace tandem
