#pragma once

// How the device keeps a matrix in codes: the codes and scales of its source
// (kernels/block_format.h, kernels/matrix_source.h), in the order in which the tensor cores take
// them. A value, given to kernels as it is.
//
// Rows are in tiles of 16. The memory of a matrix is the codes of all tiles, then the scales of all
// tiles. A tile's codes are chunks of columns; a lane of a warp reads 16 bytes of each, those of
// row l / 4 and of row l / 4 + 8 at columns 16 s + 4 (l % 4) + {0, 1, 2, 3} of step s:
//   4 bits   chunks of 64 columns. Word s of the 16 bytes is step s; with pair p of it = (columns 0
//            and 1 if p < 2, else 2 and 3; the upper row if p is even), the first of a pair is
//            nibble p, the second nibble p + 4
//   8 bits   chunks of 32 columns. Words 2 s and 2 s + 1 are step s: pairs 0 and 1, 2 and 3
//   e4m3     rows as they are, each padded to 64 columns, as cuBLASLt reads them
// A tile's scales are what blocks have, [blocks][16 rows] of f16, two f16 or f32 (GroupScales),
// then bytes of the groups, [groups][16 rows] of one or two. Units: columns, and bytes from a
// tile's begin.

#include <cstdint>

#include "kernels/block_format.h"

namespace tandem {

inline constexpr int64_t kCodedRows = 16;      // of a tile
inline constexpr int64_t kCodedStep = 16;      // columns of a product of fragments
inline constexpr int64_t kCodedBytes = 512;    // of a chunk: 16 bytes of each lane
inline constexpr int64_t kFloat8Columns = 64;  // of a chunk of e4m3

enum class CodedKind : uint8_t {
  kNibbles,  // 4 bits, less the zero
  kTable,    // 4 bits that stand for numbers
  kBytes,    // 8 bits, less the zero
  kFloat8,   // e4m3
};

struct CodedLayout {
  CodedKind kind = CodedKind::kBytes;
  GroupScales scales = GroupScales::kFloat;
  int32_t zero = 0;
  int32_t block_size = 0;
  int32_t group_size = 0;  // 16, 32 or a multiple of 64; part of a block
  int64_t num_rows = 0;
  int64_t num_columns = 0;  // a multiple of 16
  float table[16] = {};

  constexpr bool has_offsets() const {
    return scales == GroupScales::kHalfOffset || scales == GroupScales::kIntegerOffset ||
           scales == GroupScales::kFloatZero;
  }
  constexpr int64_t chunk() const { return kind == CodedKind::kBytes ? 32 : 64; }
  constexpr int64_t num_chunks() const { return (num_columns + chunk() - 1) / chunk(); }
  constexpr int64_t num_tiles() const { return (num_rows + kCodedRows - 1) / kCodedRows; }
  constexpr int64_t num_blocks() const { return (num_columns + block_size - 1) / block_size; }
  constexpr int64_t num_groups() const { return (num_columns + group_size - 1) / group_size; }
  constexpr int64_t code_bytes() const {
    return num_chunks() * (kind == CodedKind::kFloat8 ? kCodedRows * kFloat8Columns : kCodedBytes);
  }
  constexpr int64_t bytes_of_block() const {  // for one row
    switch (scales) {
      case GroupScales::kHalf:
      case GroupScales::kInteger:
        return 2;
      case GroupScales::kPower:
        return 0;
      default:
        return 4;
    }
  }
  constexpr int64_t bytes_of_group() const {  // for one row
    switch (scales) {
      case GroupScales::kInteger:
      case GroupScales::kPower:
      case GroupScales::kFloatZero:
        return 1;
      case GroupScales::kIntegerOffset:
        return 2;
      default:
        return 0;
    }
  }
  constexpr int64_t groups_begin() const { return num_blocks() * kCodedRows * bytes_of_block(); }
  constexpr int64_t scale_bytes() const {
    return groups_begin() + num_groups() * kCodedRows * bytes_of_group();
  }
  constexpr int64_t num_bytes() const { return num_tiles() * (code_bytes() + scale_bytes()); }

  friend bool operator==(const CodedLayout&, const CodedLayout&) = default;
};

}  // namespace tandem
