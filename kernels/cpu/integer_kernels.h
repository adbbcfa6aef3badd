#pragma once

// Integer matrix products, on the vec_*.h of the including isa_*.cc.
//
// int8 panels run on the loop of linear_kernels.h as they are. int4 panels hold the same bytes in a
// shorter form: for a few rows they are unpacked in registers on the way into the product, for many
// rows a block at a time into memory that stays in L2. Sums are exact, so both give equal bits.

#include <utility>

#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/norm_kernels.h"

namespace tandem {
namespace {

constexpr int64_t kCodeBytes = int64_t{4} * kPanelColumns;  // of 8 k of a panel
// A block of an int4 panel that stays in L1: 8 KiB of codes, whole groups.
constexpr int64_t kFusedSteps = 32;
constexpr int kFusedBytes = kFusedSteps * static_cast<int>(kCodeBytes);

// place(r, u): where unit u of row r goes.
template <class Type, class Place>
void QuantizeRowsTo(const void* x, int64_t stride, int64_t rows, int64_t k, int64_t k_units,
                    float* scales, int32_t* sums, Place place) {
  using Element = typename Type::Element;
  constexpr int64_t kVecUnits = kVecLanes / Int8Type::kStep;
  for (int64_t r = 0; r < rows; ++r) {
    const Element* row = static_cast<const Element*>(x) + r * stride;
    Vec max_bits = Zero();
    ForEachVec(k, [&](int64_t i, int64_t count) {
      max_bits = MaxAbsBits(max_bits, LoadN(row + i, count));
    });
    const float max = MaxOfBits(max_bits);
    const float inverse = 127 / max;  // infinite when there is nothing to scale
    const bool is_usable = max <= __FLT_MAX__ && inverse <= __FLT_MAX__;
    scales[r] = is_usable ? max / 127 : max <= __FLT_MAX__ ? 0 : __builtin_nanf("");

    int64_t unit = 0;
    Vec sum = Zero();
    if (is_usable) {
      ForEachVec(k, [&](int64_t i, int64_t count) {
        const Vec whole = RoundToInt(Mul(LoadN(row + i, count), Set1(inverse)));
        sum = Add(sum, whole);
        uint32_t bytes[kVecUnits];
        StoreBytes(reinterpret_cast<int8_t*>(bytes), whole);
        for (int64_t u = 0; u < kVecUnits && unit < k_units; ++u) *place(r, unit++) = bytes[u];
      });
    }
    while (unit < k_units) *place(r, unit++) = 0;
    sums[r] = static_cast<int32_t>(ReduceAdd(sum));
  }
}

template <class Type>
void QuantizeRows(const void* x, int64_t stride, int64_t rows, int64_t k, int64_t k_units,
                  int64_t height, uint32_t* units, float* scales, int32_t* sums) {
  const auto interleaved = [&](int64_t r, int64_t u) { return units + u * kTileRows + r; };
  const auto side_by_side = [&](int64_t r, int64_t u) { return units + r * k_units + u; };
  if (height > 0) {
    QuantizeRowsTo<Type>(x, stride, rows, k, k_units, scales, sums, interleaved);
  } else {
    QuantizeRowsTo<Type>(x, stride, rows, k, k_units, scales, sums, side_by_side);
  }
}

// Unpacks the codes of `steps` times 8 k, which begin with a group, into units, and prefetches the
// bytes `ahead` of them.
inline void UnpackInt4(const uint8_t* from, int64_t steps, int64_t group_steps, int64_t ahead,
                       uint32_t* to) {
  constexpr int kVecs = kPanelColumns / kVecLanes;
  for (int64_t s = 0; s < steps; s += group_steps) {
    const int64_t count = steps - s < group_steps ? steps - s : group_steps;
    const auto* codes = reinterpret_cast<const uint32_t*>(from + kPanelColumns);
    for (int v = 0; v < kVecs; ++v) {
      const Int4Groups groups = LoadInt4Groups(from + v * kVecLanes);
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t* line = codes + i * kPanelColumns + v * kVecLanes;
        if constexpr (kPrefetchWeights) {
          __builtin_prefetch(reinterpret_cast<const uint8_t*>(line) + ahead, 0, 3);
        }
        const Units packed = LoadUnits(line);
        uint32_t* out = to + 2 * i * kPanelColumns + v * kVecLanes;
        StoreUnits(out, LowCodes(packed, groups));
        StoreUnits(out + kPanelColumns, HighCodes(packed, groups));
      }
    }
    from += kPanelColumns + count * kCodeBytes;
    to += 2 * count * kPanelColumns;
  }
}

// A block of a packed panel: whole groups, or the last ones.
struct Int4Block {
  const uint8_t* codes;
  int64_t steps;  // of 8 k
  int64_t first_unit;
  int64_t column;  // of the panel's first
  bool is_first;
  bool is_last;
};

// kRows rows from `row` on (side by side, not packed) against kVecs vectors of columns of a block.
// Sums come from and go to `partial`, [m][64], except for the first and last block (with adapters,
// for the first). kAhead: the distance in bytes at which lines are prefetched; 0: none are.
template <int kRows, int kVecs, int kAhead>
void Int4Strip(const LinearTask& task, const Int4Block& block, int64_t row, int strip,
               float* partial) {
  Vec sum[kRows][kVecs];
  float* sums = partial + row * kPanelColumns + strip;
  TANDEM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TANDEM_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      sum[r][v] = block.is_first ? Zero() : Load(sums + r * kPanelColumns + v * kVecLanes);
    }
  }
  const uint8_t* from = block.codes;
  const uint32_t* a = task.a + row * task.a_stride + block.first_unit;
  for (int64_t s = 0; s < block.steps; s += task.group_steps) {
    const int64_t left = block.steps - s;
    const int64_t count = left < task.group_steps ? left : task.group_steps;
    Int4Groups groups[kVecs];
    TANDEM_UNROLL
    for (int v = 0; v < kVecs; ++v) groups[v] = LoadInt4Groups(from + strip + v * kVecLanes);
    from += kPanelColumns;
    for (int64_t i = 0; i < count; ++i, a += 2, from += kCodeBytes) {
      if constexpr (kAhead > 0) {
        TANDEM_UNROLL
        for (int line = 0; line < kPanelColumns / kVecLanes; ++line) {
          __builtin_prefetch(from + kAhead + line * 64, 0, 3);
        }
      }
      const auto* codes = reinterpret_cast<const uint32_t*>(from) + strip;
      Units weight[kVecs];
      TANDEM_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        weight[v] = LowCodes(LoadUnits(codes + v * kVecLanes), groups[v]);
      }
      TANDEM_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto broadcast = Int8Type::Spread(a + r * task.a_stride);
        TANDEM_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          sum[r][v] = Int8Type::Dot(sum[r][v], broadcast, weight[v]);
        }
      }
      TANDEM_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        weight[v] = HighCodes(LoadUnits(codes + v * kVecLanes), groups[v]);
      }
      TANDEM_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto broadcast = Int8Type::Spread(a + r * task.a_stride + 1);
        TANDEM_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          sum[r][v] = Int8Type::Dot(sum[r][v], broadcast, weight[v]);
        }
      }
    }
  }
  TANDEM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TANDEM_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      if (block.is_last && task.terms == nullptr) {
        StoreOutput<Int8Type>(task, row + r, block.column + strip + v * kVecLanes, sum[r][v]);
      } else {
        Store(sums + r * kPanelColumns + v * kVecLanes, sum[r][v]);
      }
    }
  }
}

// All columns of a block for kRows rows. kIsFirst: these rows walk it first.
template <int kRows, bool kIsFirst>
void Int4Rows(const LinearTask& task, const Int4Block& block, int64_t row, float* partial) {
  constexpr int kPanelVecs = kPanelColumns / kVecLanes;
  if constexpr (kRows <= 3) {  // four rows would not fit into the registers
    Int4Strip<kRows, kPanelVecs, kIsFirst ? 4096 : 0>(task, block, row, 0, partial);
  } else {
    constexpr int kHalf = kPanelColumns / 2;
    Int4Strip<kRows, kPanelVecs / 2, kIsFirst ? kFusedBytes : 0>(task, block, row, 0, partial);
    Int4Strip<kRows, kPanelVecs / 2, 0>(task, block, row, kHalf, partial);
  }
}

template <bool kIsFirst>
void Int4AnyRows(const LinearTask& task, const Int4Block& block, int64_t row, float* partial) {
  const int64_t rows = task.m - row < kInt4Rows ? task.m - row : kInt4Rows;
  [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    (void)((rows == kLess + 1 &&
            (Int4Rows<kLess + 1, kIsFirst>(task, block, row, partial), true)) ||
           ...);
  }
  (std::make_integer_sequence<int, kInt4Rows>());
}

// int4 columns of panels for rows that lie side by side, unpacked in registers. With more than a
// few rows a block is walked several times, from L1.
inline void FusedInt4Panel(const LinearTask& task, const uint8_t* panel, int64_t column,
                           float* partial) {
  const int64_t steps = task.k_units / 2;
  const int64_t block_steps = task.m <= 3 ? steps : kFusedSteps;
  for (int64_t s = 0; s < steps; s += block_steps) {
    const int64_t count = steps - s < block_steps ? steps - s : block_steps;
    const Int4Block block = {
        panel + s / task.group_steps * (kPanelColumns + task.group_steps * kCodeBytes),
        count,
        2 * s,
        column,
        s == 0,
        s + count == steps};
    Int4AnyRows<true>(task, block, 0, partial);
    for (int64_t row = kInt4Rows; row < task.m; row += kInt4Rows) {
      Int4AnyRows<false>(task, block, row, partial);
    }
  }
  if (task.terms == nullptr) return;
  StoreSums<Int8Type>(task, 0, task.m, column / kPanelColumns, partial);
}

inline void LinearInt4(const LinearTask& task, int64_t row_begin, int64_t row_end,
                       int64_t panel_begin, int64_t panel_end, float* partial) {
  const int64_t steps = task.k_units / 2;
  const int64_t groups = (steps + task.group_steps - 1) / task.group_steps;
  const int64_t panel_bytes = groups * kPanelColumns + steps * kCodeBytes;
  const int64_t group_bytes = kPanelColumns + task.group_steps * kCodeBytes;
  const int64_t rows = row_end - row_begin;
  // An unpacked block stays in L1 for a few rows, whose sums are cheap to carry from block to
  // block, and in L2 for many.
  const int64_t block = rows <= kFewRows                     ? 2 * kFusedSteps
                        : task.k_units < kBlockUnits * 3 / 2 ? task.k_units
                                                             : kBlockUnits;
  const int64_t ahead = rows <= kFewRows ? kFusedBytes : 4096;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(task.weight) + panel * panel_bytes;
    const int64_t column = panel * kPanelColumns;
    if constexpr (kInt4Rows > 0) {
      if (!task.packed) {
        FusedInt4Panel(task, codes, column, partial);
        continue;
      }
    }
    auto* units = reinterpret_cast<uint32_t*>(partial + rows * kPanelColumns);
    for (int64_t k = 0; k < task.k_units; k += block) {
      const int64_t count = task.k_units - k < block ? task.k_units - k : block;
      UnpackInt4(codes + k / 2 / task.group_steps * group_bytes, count / 2, task.group_steps, ahead,
                 units);
      PanelBlock<Int8Type, 0>(task, row_begin, row_end, units, panel, k, count, partial, units);
    }
  }
}

}  // namespace
}  // namespace tandem
