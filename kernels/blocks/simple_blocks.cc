// Blocks of 32 weights: a scale d and perhaps an offset m in f16, perhaps the fifth bits of the
// codes as one word, then the codes.

#include "kernels/blocks/blocks.h"

namespace tandem {
namespace {

constexpr int kSize = 32;

// Codes of 5 bits.
void UnpackFiveBits(const uint8_t* fifth_bits, const uint8_t* nibbles, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, fifth_bits, sizeof bits);
  UnpackNibbles(nibbles, codes);
  for (int i = 0; i < kSize; ++i) codes[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
}

}  // namespace

void ReadQ4_0(const uint8_t* block, BlockCodes* parts) {
  parts->scale = HalfAt(block);
  UnpackNibbles(block + 2, parts->codes);
}

void ReadQ4_1(const uint8_t* block, BlockCodes* parts) {
  parts->scale = HalfAt(block);
  parts->offset = HalfAt(block + 2);
  UnpackNibbles(block + 4, parts->codes);
}

void ReadQ5_0(const uint8_t* block, BlockCodes* parts) {
  parts->scale = HalfAt(block);
  UnpackFiveBits(block + 2, block + 6, parts->codes);
}

void ReadQ5_1(const uint8_t* block, BlockCodes* parts) {
  parts->scale = HalfAt(block);
  parts->offset = HalfAt(block + 2);
  UnpackFiveBits(block + 4, block + 8, parts->codes);
}

// Signed bytes; a code is one plus 128.
void ReadQ8_0(const uint8_t* block, BlockCodes* parts) {
  parts->scale = HalfAt(block);
  for (int i = 0; i < kSize; ++i) parts->codes[i] = block[2 + i] ^ 0x80;
}

}  // namespace tandem
