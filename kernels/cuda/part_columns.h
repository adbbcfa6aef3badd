#pragma once

// The columns of RankColumns as kernels take them, in units of several numbers where all parts
// begin and end at such units.

#include <algorithm>
#include <cstdint>

#include "kernels/rank_exchange.h"

namespace tandem {

struct PartColumns {
  int32_t begin[kMaxDeviceRanks], count[kMaxDeviceRanks];
};

inline int64_t WidestPart(const RankColumns& columns) {
  int64_t widest = 0;
  for (const Slice& part : columns.of_rank) widest = std::max(widest, part.count);
  return widest;
}

// In units of `size` numbers; false: they do not begin and end at such units.
inline bool InUnits(const RankColumns& columns, int64_t size, PartColumns* units) {
  for (size_t r = 0; r < columns.of_rank.size(); ++r) {
    const Slice& part = columns.of_rank[r];
    if (part.begin % size != 0 || part.count % size != 0) return false;
    units->begin[r] = static_cast<int32_t>(part.begin / size);
    units->count[r] = static_cast<int32_t>(part.count / size);
  }
  return true;
}

// Whether rows begin at 16 bytes, as units of so many are read and written.
inline bool HasRowsOf16Bytes(const Tensor& x) {
  return x.row_stride * SizeOf(x.dtype) % 16 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

}  // namespace tandem
