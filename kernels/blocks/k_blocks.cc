// K-quants: blocks of 256 weights in groups of 16 or 32. A group's scale is an integer of 4, 6 or 8
// bits times d of the block, its offset an integer times dmin. Bits of codes lie in stripes: byte l
// of 32 has those of weights l, 32 + l, 64 + l ..., the lowest first.

#include "kernels/blocks/blocks.h"

namespace tandem {
namespace {

constexpr int kStripe = 32, kNumStripes = 8, kNumHalfStripes = 16;

// codes |= the weights' `bits` bits each, shifted to their place above `low_bits` others.
void AddBits(const uint8_t* all, int bits, int low_bits, uint8_t* codes) {
  const int per_byte = 8 / bits, mask = (1 << bits) - 1;
  for (int stripe = 0; stripe < kNumStripes; ++stripe, codes += kStripe) {
    const uint8_t* const bytes = all + stripe / per_byte * kStripe;
    const int shift = stripe % per_byte * bits;
    for (int l = 0; l < kStripe; ++l) {
      codes[l] |= static_cast<uint8_t>((bytes[l] >> shift & mask) << low_bits);
    }
  }
}

// The eight scales and offsets of 6 bits in 12 bytes of Q4_K and Q5_K.
void ReadSixBitScales(const uint8_t* bytes, BlockCodes* parts) {
  for (int g = 0; g < 4; ++g) {
    parts->group_scales[g] = bytes[g] & 63;
    parts->group_offsets[g] = bytes[g + 4] & 63;
    parts->group_scales[g + 4] = static_cast<uint8_t>((bytes[g + 8] & 15) | bytes[g] >> 6 << 4);
    parts->group_offsets[g + 4] = static_cast<uint8_t>(bytes[g + 8] >> 4 | bytes[g + 4] >> 6 << 4);
  }
}

void ReadScaleAndOffset(const uint8_t* bytes, BlockCodes* parts) {
  parts->scale = HalfAt(bytes);
  parts->offset = HalfAt(bytes + 2);
}

// Scale of a group of 16 in Q3_K: 16 low nibbles in 8 bytes, then 16 times two high bits in 4.
int SignedScale(const uint8_t* bytes, int group) {
  const int low = group < 8 ? bytes[group] & 15 : bytes[group - 8] >> 4;
  const int high = bytes[8 + group % 4] >> (group / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

}  // namespace

// 16 scales and offsets of 4 bits, 64 bytes of 2-bit codes, d, dmin.
void ReadQ2K(const uint8_t* block, BlockCodes* parts) {
  ReadScaleAndOffset(block + 80, parts);
  for (int group = 0; group < kNumHalfStripes; ++group) {
    parts->group_scales[group] = block[group] & 15;
    parts->group_offsets[group] = block[group] >> 4;
  }
  std::memset(parts->codes, 0, kMaxBlockSize);
  AddBits(block + 16, 2, 0, parts->codes);
}

// 32 bytes of third bits (a cleared one subtracts 4), 64 of 2-bit codes, 12 of scales, d.
void ReadQ3K(const uint8_t* block, BlockCodes* parts) {
  parts->scale = HalfAt(block + 108);
  for (int group = 0; group < kNumHalfStripes; ++group) {
    parts->group_scales[group] = static_cast<uint8_t>(SignedScale(block + 96, group));
  }
  std::memset(parts->codes, 0, kMaxBlockSize);
  AddBits(block + 32, 2, 0, parts->codes);
  AddBits(block, 1, 2, parts->codes);
}

// d, dmin, 12 bytes of scales, 128 of 4-bit codes.
void ReadQ4K(const uint8_t* block, BlockCodes* parts) {
  ReadScaleAndOffset(block, parts);
  ReadSixBitScales(block + 4, parts);
  std::memset(parts->codes, 0, kMaxBlockSize);
  AddBits(block + 16, 4, 0, parts->codes);
}

// As Q4_K, with 32 bytes of fifth bits before the codes.
void ReadQ5K(const uint8_t* block, BlockCodes* parts) {
  ReadScaleAndOffset(block, parts);
  ReadSixBitScales(block + 4, parts);
  std::memset(parts->codes, 0, kMaxBlockSize);
  AddBits(block + 48, 4, 0, parts->codes);
  AddBits(block + 16, 1, 4, parts->codes);
}

// 128 bytes of low nibbles and 64 of the two bits above them, each in halves of 128 weights; 16
// int8 scales; d. The nibbles of a half are those of its stripes 0, 1 (low) and 2, 3 (high).
void ReadQ6K(const uint8_t* block, BlockCodes* parts) {
  parts->scale = HalfAt(block + 208);
  std::memcpy(parts->group_scales, block + 192, kNumHalfStripes);
  for (int stripe = 0; stripe < kNumStripes; ++stripe) {
    const int half = stripe / 4, quarter = stripe % 4;
    const uint8_t* const nibbles = block + half * 64 + quarter % 2 * kStripe;
    const int shift = quarter / 2 * 4;
    uint8_t* const codes = parts->codes + stripe * kStripe;
    for (int l = 0; l < kStripe; ++l) codes[l] = nibbles[l] >> shift & 15;
  }
  AddBits(block + 128, 2, 4, parts->codes);
}

}  // namespace tandem
