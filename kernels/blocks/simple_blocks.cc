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

// d * (code - zero)
void Scale(const uint8_t* codes, int zero, float d, float* weights) {
  for (int i = 0; i < kSize; ++i) weights[i] = d * static_cast<float>(codes[i] - zero);
}

// d * code + m
void ScaleAndAdd(const uint8_t* codes, float d, float m, float* weights) {
  for (int i = 0; i < kSize; ++i) weights[i] = d * static_cast<float>(codes[i]) + m;
}

}  // namespace

void ReadQ4_0(const uint8_t* block, float* weights) {
  uint8_t codes[kSize];
  UnpackNibbles(block + 2, codes);
  Scale(codes, 8, HalfAt(block), weights);
}

void ReadQ4_1(const uint8_t* block, float* weights) {
  uint8_t codes[kSize];
  UnpackNibbles(block + 4, codes);
  ScaleAndAdd(codes, HalfAt(block), HalfAt(block + 2), weights);
}

void ReadQ5_0(const uint8_t* block, float* weights) {
  uint8_t codes[kSize];
  UnpackFiveBits(block + 2, block + 6, codes);
  Scale(codes, 16, HalfAt(block), weights);
}

void ReadQ5_1(const uint8_t* block, float* weights) {
  uint8_t codes[kSize];
  UnpackFiveBits(block + 4, block + 8, codes);
  ScaleAndAdd(codes, HalfAt(block), HalfAt(block + 2), weights);
}

void ReadQ8_0(const uint8_t* block, float* weights) {
  const float d = HalfAt(block);
  const auto* codes = reinterpret_cast<const int8_t*>(block + 2);
  for (int i = 0; i < kSize; ++i) weights[i] = d * static_cast<float>(codes[i]);
}

}  // namespace tandem
