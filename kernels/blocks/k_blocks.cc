// K-quants: blocks of 256 weights in groups of 16 or 32. A group's scale is an integer of 4, 6 or 8
// bits times d of the block, its offset an integer times dmin. Bits of codes lie in stripes: byte l
// of 32 has those of weights l, 32 + l, 64 + l ..., the lowest first.

#include "kernels/blocks/blocks.h"

namespace tandem {
namespace {

constexpr int kStripe = 32, kNumStripes = 8, kGroup = 16;

// Of the weights of one stripe: their `bits` bits each.
struct StripeBits {
  StripeBits(const uint8_t* all, int stripe, int bits)
      : bytes(all + stripe / (8 / bits) * kStripe),
        shift(stripe % (8 / bits) * bits),
        mask((1 << bits) - 1) {}
  int At(int l) const { return bytes[l] >> shift & mask; }

  const uint8_t* bytes;
  int shift;
  int mask;
};

// The eight scales and offsets of 6 bits in 12 bytes of Q4_K and Q5_K.
struct GroupScale {
  int scale, offset;
};
GroupScale SixBitScale(const uint8_t* bytes, int group) {
  if (group < 4) return {bytes[group] & 63, bytes[group + 4] & 63};
  return {(bytes[group + 4] & 15) | (bytes[group - 4] >> 6) << 4,
          (bytes[group + 4] >> 4) | (bytes[group] >> 6) << 4};
}

// Scale of a group of 16 in Q3_K: 16 low nibbles in 8 bytes, then 16 times two high bits in 4.
int SignedScale(const uint8_t* bytes, int group) {
  const int low = group < 8 ? bytes[group] & 15 : bytes[group - 8] >> 4;
  const int high = bytes[8 + group % 4] >> (group / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

}  // namespace

// 16 scales and offsets of 4 bits, 64 bytes of 2-bit codes, d, dmin.
void ReadQ2K(const uint8_t* block, float* weights) {
  const float d = HalfAt(block + 80), dmin = HalfAt(block + 82);
  for (int stripe = 0; stripe < kNumStripes; ++stripe) {
    const StripeBits codes(block + 16, stripe, 2);
    for (int begin = 0; begin < kStripe; begin += kGroup, weights += kGroup) {
      const uint8_t group = block[stripe * 2 + begin / kGroup];
      const float scale = d * static_cast<float>(group & 15);
      const float offset = dmin * static_cast<float>(group >> 4);
      for (int i = 0; i < kGroup; ++i) {
        weights[i] = scale * static_cast<float>(codes.At(begin + i)) - offset;
      }
    }
  }
}

// 32 bytes of third bits (a cleared one subtracts 4), 64 of 2-bit codes, 12 of scales, d.
void ReadQ3K(const uint8_t* block, float* weights) {
  const float d = HalfAt(block + 108);
  for (int stripe = 0; stripe < kNumStripes; ++stripe) {
    const StripeBits low(block + 32, stripe, 2), high(block, stripe, 1);
    for (int begin = 0; begin < kStripe; begin += kGroup, weights += kGroup) {
      const int group = stripe * 2 + begin / kGroup;
      const float scale = d * static_cast<float>(SignedScale(block + 96, group));
      for (int i = 0; i < kGroup; ++i) {
        const int code = low.At(begin + i) + 4 * high.At(begin + i) - 4;
        weights[i] = scale * static_cast<float>(code);
      }
    }
  }
}

// d, dmin, 12 bytes of scales, 128 of 4-bit codes.
void ReadQ4K(const uint8_t* block, float* weights) {
  const float d = HalfAt(block), dmin = HalfAt(block + 2);
  for (int stripe = 0; stripe < kNumStripes; ++stripe, weights += kStripe) {
    const StripeBits codes(block + 16, stripe, 4);
    const GroupScale group = SixBitScale(block + 4, stripe);
    const float scale = d * static_cast<float>(group.scale);
    const float offset = dmin * static_cast<float>(group.offset);
    for (int i = 0; i < kStripe; ++i) {
      weights[i] = scale * static_cast<float>(codes.At(i)) - offset;
    }
  }
}

// As Q4_K, with 32 bytes of fifth bits before the codes.
void ReadQ5K(const uint8_t* block, float* weights) {
  const float d = HalfAt(block), dmin = HalfAt(block + 2);
  for (int stripe = 0; stripe < kNumStripes; ++stripe, weights += kStripe) {
    const StripeBits low(block + 48, stripe, 4), high(block + 16, stripe, 1);
    const GroupScale group = SixBitScale(block + 4, stripe);
    const float scale = d * static_cast<float>(group.scale);
    const float offset = dmin * static_cast<float>(group.offset);
    for (int i = 0; i < kStripe; ++i) {
      weights[i] = scale * static_cast<float>(low.At(i) | high.At(i) << 4) - offset;
    }
  }
}

// 128 bytes of low nibbles and 64 of the two bits above them, each in halves of 128 weights; 16
// int8 scales; d. The nibbles of a half are those of its stripes 0, 1 (low) and 2, 3 (high).
void ReadQ6K(const uint8_t* block, float* weights) {
  const float d = HalfAt(block + 208);
  const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
  for (int stripe = 0; stripe < kNumStripes; ++stripe) {
    const int half = stripe / 4, quarter = stripe % 4;
    const uint8_t* const nibbles = block + half * 64 + quarter % 2 * kStripe;
    const int shift = quarter / 2 * 4;
    const StripeBits high(block + 128, stripe, 2);
    for (int begin = 0; begin < kStripe; begin += kGroup, weights += kGroup) {
      const float scale = d * static_cast<float>(scales[stripe * 2 + begin / kGroup]);
      for (int i = 0; i < kGroup; ++i) {
        const int low = nibbles[begin + i] >> shift & 15;
        weights[i] = scale * static_cast<float>((low | high.At(begin + i) << 4) - 32);
      }
    }
  }
}

}  // namespace tandem
