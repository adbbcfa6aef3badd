#pragma once

// Panels of 64 rows of a matrix in the blocks of its source (WeightFormat::kStored): the same
// numbers as in the file, side by side for the kernels. A panel is its blocks in the order of K,
// each for 64 columns of the output:
//   scale, offset      f16 or f32 [64] each, where the format has them
//   group scales       bytes [groups][64]
//   group offsets      bytes [groups][64]; or zeros
//   codes              for each 32 weights two planes of bits, the low ones first:
//                      [words][64] of 4 bytes, words = bits of the plane
// A plane of b bits has b of each code. Its word w holds the 8 / b units of 4 weights that begin
// with unit w * 8 / b; b bits of a unit's weights lie in the four bytes, from bit b * u for the
// u-th of these units. So a shift and a mask give a unit. 8 bits have one plane, which is what the
// products read.
// Thread: any; values. Ownership: views of the matrix's memory.

#include <cstdint>

#include "kernels/block_format.h"
#include "kernels/cpu/kernel_table.h"

namespace tandem {

inline constexpr int64_t kGroupWeights = 32;  // share a scale of the activations
inline constexpr int64_t kUnitsOfGroup = kGroupWeights / 4;

// The planes of a code's bits.
struct CodePlanes {
  int low, high;
};
constexpr CodePlanes PlanesOf(int bits) {
  return bits == 8   ? CodePlanes{8, 0}
         : bits >= 4 ? CodePlanes{4, bits - 4}
                     : CodePlanes{2, bits - 2};
}

struct BlockPanelShape {
  explicit BlockPanelShape(const BlockFormat& block_format);

  // Writes the parts of a block as column `lane` of block `block`, and reads them back.
  void Write(const BlockCodes& parts, int64_t block, int64_t lane, uint8_t* panel) const;
  void Read(const uint8_t* panel, int64_t block, int64_t lane, BlockCodes* parts) const;
  int64_t PanelBytes(int64_t k) const { return k / format.size * num_bytes; }
  // Weights that share a scale, as the kernels see it: 16 or 32.
  int64_t kernel_group() const { return format.group_size == 16 ? 16 : kGroupWeights; }

  BlockFormat format;
  // From the begin of a block; a part that the format lacks is empty.
  int64_t offset = 0;  // of the blocks' offsets
  int64_t group_scales = 0;
  int64_t group_offsets = 0;
  int64_t codes = 0;
  int64_t code_bytes = 0;  // of 32 weights
  int64_t num_bytes = 0;   // of a block
  bool has_scale = false, has_float_scale = false, has_offset = false;
  bool has_group_scales = false, has_group_offsets = false;
  int32_t zero = 0;        // the byte that stands for 0 in an unpacked panel
  uint8_t table[16] = {};  // the bytes that 4-bit codes stand for, where they do
};

// A panel of a matrix, which has rows of several sources and so perhaps panels of several shapes.
struct BlockPanel {
  const BlockPanelShape* shape;
  const uint8_t* bytes;
  int64_t column;  // of the output
  int64_t num_columns;
};

// out[m, n] = a[m, :] . weight[n, :] + bias, as WeightFormat::kStored says.
struct BlockTask {
  LinearTask output;  // m, out and bias; n is the panel's
  const BlockPanel* panels = nullptr;
  int64_t num_groups = 0;         // of 32 weights of K
  const uint32_t* a = nullptr;    // [m][num_groups][8] units of int8
  const float* scales = nullptr;  // [m][num_groups]
  const int32_t* sums = nullptr;  // [m][num_groups][2], each of 16 int8
};

// Most groups of K that are unpacked at once, for few rows (in L1) and for many (in L2).
inline constexpr int64_t kFewGroups = 8, kManyGroups = 32;
// Floats of room that a product of `rows` rows needs: their sums, unpacked codes, scales, offsets.
constexpr int64_t BlockRoom(int64_t rows) {
  return rows * kPanelColumns + kManyGroups * kPanelColumns * (kUnitsOfGroup + 4);
}

}  // namespace tandem
