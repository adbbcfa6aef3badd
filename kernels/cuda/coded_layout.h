#pragma once

// How the device keeps a matrix in codes: the codes and scales of its source
// (kernels/block_format.h, kernels/matrix_source.h), in the order in which the tensor cores take
// them. A value, given to kernels as it is.
//
// Rows are in tiles of 16. The memory of a matrix is the codes of all tiles, then the scales of all
// tiles. A tile's codes are chunks of columns, in steps of 16; a lane of a warp reads 16 bytes of
// each chunk: of row l / 4 and of row l / 4 + 8, in each step, four columns. Groups of 32 columns
// or more have wide steps: the four columns of steps 2 i and 2 i + 1 are next to each other, so
// that a lane reads 16 bytes of x for both.
//   wide     columns 32 (s / 2) + 8 (l % 4) + 4 (s % 2) + {0, 1, 2, 3} of step s
//   others   columns 16 s + 4 (l % 4) + {0, 1, 2, 3}
//   4 bits   chunks of 64 columns. Word s of the 16 bytes is step s; with pair p of it = (columns 0
//            and 1 if p < 2, else 2 and 3; the upper row if p is even), the first of a pair is
//            nibble p, the second nibble p + 4
//   8 bits   chunks of 32 columns. Words 2 s and 2 s + 1 are step s: pairs 0 and 1, 2 and 3
//   e4m3     rows as they are, each padded to 64 columns, as cuBLASLt reads them; a lane reads 16
//            columns of both rows, 16 (l % 4) + 4 s + {0, 1, 2, 3} in step s
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

// Where a column of a chunk lies.
struct CodedPlace {
  int step, piece;  // of lanes l with l % 4 = piece
  int place;        // of the four columns
};

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
    return scales == GroupScales::kHalfOffset || scales == GroupScales::kIntegerOffset;
  }
  constexpr bool has_zeros() const { return scales == GroupScales::kFloatZero; }
  constexpr bool is_wide() const { return group_size % 32 == 0; }
  constexpr CodedPlace PlaceOf(int column) const {
    const int place = column % 4;
    if (kind == CodedKind::kFloat8) return {column % 16 / 4, column / 16, place};
    if (is_wide()) return {column / 32 * 2 + column % 8 / 4, column % 32 / 8, place};
    return {column / 16, column % 16 / 4, place};
  }
  constexpr int64_t chunk() const { return kind == CodedKind::kBytes ? 32 : 64; }
  constexpr int64_t num_chunks() const { return (num_columns + chunk() - 1) / chunk(); }
  constexpr int64_t num_tiles() const { return (num_rows + kCodedRows - 1) / kCodedRows; }
  constexpr int64_t num_blocks() const { return NumRuns(block_size); }
  constexpr int64_t num_groups() const { return NumRuns(group_size); }
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

 private:
  // Kernels divide 64 bits slowly.
  constexpr uint32_t NumRuns(int32_t size) const {
    const auto each = static_cast<uint32_t>(size);
    return (static_cast<uint32_t>(num_columns) + each - 1) / each;
  }
};

}  // namespace tandem
