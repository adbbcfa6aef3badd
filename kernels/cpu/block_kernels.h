#pragma once

// Products with panels in the blocks of their sources (block_panel.h), on the vec_*.h of the
// including isa_*.cc.
//
// A run of a panel's groups is brought into one form for all formats, bytes with scales and offsets
// in float32, and multiplied with all rows before the next run: for a few rows it stays in L1, for
// many in L2. Sums of a group are exact; groups are added in float32 in the order of K by fused
// multiplies and adds, so every instruction set has the reference's bits.

#include <algorithm>
#include <utility>

#include "kernels/cpu/block_panel.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/norm_kernels.h"

namespace tandem {
namespace {

constexpr int kVecsOfPanel = kPanelColumns / kVecLanes;
constexpr int kGroupWords = kUnitsOfGroup * kPanelColumns;  // bytes of 32 weights, as units

template <class Type>
void QuantizeBlocks(const void* x, int64_t num_groups, uint32_t* units, float* scales,
                    int32_t* sums) {
  const auto* row = static_cast<const typename Type::Element*>(x);
  for (int64_t g = 0; g < num_groups; ++g, row += 2 * kVecLanes, units += kUnitsOfGroup) {
    const Vec halves[2] = {Load(row), Load(row + kVecLanes)};
    const float max = ReduceMaxBits(MaxAbsBits(MaxAbsBits(Zero(), halves[0]), halves[1]));
    const float inverse = 127 / max;  // infinite when there is nothing to scale
    const bool is_usable = max <= __FLT_MAX__ && inverse <= __FLT_MAX__;
    scales[g] = is_usable ? max / 127 : max <= __FLT_MAX__ ? 0 : __builtin_nanf("");
    for (int half = 0; half < 2; ++half) {
      const Vec whole = is_usable ? RoundToInt(Mul(halves[half], Set1(inverse))) : Zero();
      StoreBytes(reinterpret_cast<int8_t*>(units + half * 4), whole);
      sums[2 * g + half] = static_cast<int32_t>(ReduceAdd(whole));
    }
  }
}

// What the offsets of a run are.
enum class Offsets { kNone, kAdded, kZeros };

// A run of groups in the form that products read.
struct BlockRun {
  const uint32_t* codes;  // [8][64] units of a group
  int64_t stride;         // units from a group to the next
  const uint8_t* next;    // bytes of the next run, which the first rows prefetch
  const float* scales;    // [groups or halves of groups][64]
  const float* offsets;   // the same, where there are any
  int64_t first;          // group of K
  int64_t count;
  int32_t zero;
  bool is_first, is_last;
};

// Unit u of eight, out of a plane's words.
template <int kBits>
inline __attribute__((always_inline)) Units UnitOf(const Units* words, int u) {
  constexpr int kPerWord = 8 / kBits;
  const Units shifted = ShiftRight(words[u / kPerWord], u % kPerWord * kBits);
  return AndUnits(shifted, ((1u << kBits) - 1) * 0x01010101u);
}

// The codes of 32 weights as bytes.
template <int kLow, int kHigh, bool kHasTable>
inline void UnpackGroup(const uint8_t* from, const uint8_t* table, uint32_t* to) {
  const auto* words = reinterpret_cast<const uint32_t*>(from);
  for (int v = 0; v < kVecsOfPanel; ++v, words += kVecLanes, to += kVecLanes) {
    Units low[kLow], high[std::max(kHigh, 1)];
    TANDEM_UNROLL
    for (int w = 0; w < kLow; ++w) low[w] = LoadUnits(words + w * kPanelColumns);
    TANDEM_UNROLL
    for (int w = 0; w < kHigh; ++w) high[w] = LoadUnits(words + (kLow + w) * kPanelColumns);
    TANDEM_UNROLL
    for (int u = 0; u < kUnitsOfGroup; ++u) {
      Units unit = UnitOf<kLow>(low, u);
      if constexpr (kHigh > 0) unit = OrUnits(unit, ShiftLeft(UnitOf<kHigh>(high, u), kLow));
      if constexpr (kHasTable) unit = LookUp(unit, table);
      StoreUnits(to + u * kPanelColumns, unit);
    }
  }
}

inline void UnpackCodes(const BlockPanelShape& shape, const uint8_t* block, uint32_t* to) {
  const uint8_t* from = block + shape.codes;
  const uint8_t* const end = block + shape.num_bytes;
  for (; from < end; from += shape.code_bytes, to += kGroupWords) {
    switch (shape.format.bits) {
      case 2:
        UnpackGroup<2, 0, false>(from, nullptr, to);
        break;
      case 3:
        UnpackGroup<2, 1, false>(from, nullptr, to);
        break;
      case 4:
        if (shape.format.values != nullptr) {
          UnpackGroup<4, 0, true>(from, shape.table, to);
        } else {
          UnpackGroup<4, 0, false>(from, nullptr, to);
        }
        break;
      case 5:
        UnpackGroup<4, 1, false>(from, nullptr, to);
        break;
      default:
        UnpackGroup<4, 2, false>(from, nullptr, to);
    }
  }
}

// Scales and offsets of a block's groups.
template <GroupScales kScales>
void UnpackScales(const BlockPanelShape& shape, const uint8_t* block, float* scales,
                  float* offsets) {
  using enum GroupScales;
  const int64_t group_size = shape.kernel_group();
  const int64_t count = shape.format.size / group_size;
  for (int v = 0; v < kPanelColumns; v += kVecLanes) {
    Vec scale = Zero(), offset = Zero();
    if constexpr (kScales == kFloat || kScales == kFloatZero) {
      scale = Load(reinterpret_cast<const float*>(block) + v);
    } else if constexpr (kScales != kPower) {
      scale = LoadHalves(reinterpret_cast<const uint16_t*>(block) + v);
    }
    if constexpr (kScales == kHalfOffset || kScales == kIntegerOffset) {
      offset = LoadHalves(reinterpret_cast<const uint16_t*>(block + shape.offset) + v);
    }
    // Blocks of codes are one group, whatever their size.
    if constexpr (kScales == kFloatZero) {
      offset = LoadBytes(reinterpret_cast<const int8_t*>(block + shape.group_offsets) + v);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i * kPanelColumns + v;
      const uint8_t* const bytes = block + shape.group_scales + at;
      if constexpr (kScales == kInteger) {
        Store(scales + at, Mul(scale, LoadBytes(reinterpret_cast<const int8_t*>(bytes))));
      } else if constexpr (kScales == kIntegerOffset) {
        const Vec times = LoadUnsignedBytes(block + shape.group_offsets + at);
        Store(scales + at, Mul(scale, LoadUnsignedBytes(bytes)));
        Store(offsets + at, Sub(Set1(-0.0f), Mul(offset, times)));
      } else if constexpr (kScales == kPower) {
        Store(scales + at, LoadPowers(bytes));
      } else {
        Store(scales + at, scale);
        if constexpr (kScales == kHalfOffset || kScales == kFloatZero) Store(offsets + at, offset);
      }
    }
  }
}

// Of all blocks of a run.
inline void UnpackScales(const BlockPanelShape& shape, const uint8_t* blocks, int64_t num_blocks,
                         float* scales, float* offsets) {
  using enum GroupScales;
  const int64_t step = shape.format.size / shape.kernel_group() * kPanelColumns;
  const auto unpack = [&]<GroupScales kScales>() {
    for (int64_t i = 0; i < num_blocks; ++i) {
      UnpackScales<kScales>(shape, blocks + i * shape.num_bytes, scales + i * step,
                            offsets + i * step);
    }
  };
  switch (shape.format.scales) {
    case kHalf:
      return unpack.template operator()<kHalf>();
    case kHalfOffset:
      return unpack.template operator()<kHalfOffset>();
    case kInteger:
      return unpack.template operator()<kInteger>();
    case kIntegerOffset:
      return unpack.template operator()<kIntegerOffset>();
    case kPower:
      return unpack.template operator()<kPower>();
    case kFloat:
      return unpack.template operator()<kFloat>();
    case kFloatZero:
      return unpack.template operator()<kFloatZero>();
  }
}

// kRows rows against kVecs vectors of columns of a run, in groups of 32 / kParts weights. `sums`,
// [rows][64], carries the sums from one run to the next.
template <int kRows, int kVecs, int kParts, Offsets kOffsets, bool kPrefetches>
void BlockTile(const BlockTask& task, const LinearTask& output, const BlockRun& run, int64_t row,
               int64_t panel_column, int strip, float* sums) {
  constexpr int kUnits = kUnitsOfGroup / kParts;
  const int64_t a_stride = task.num_groups * kUnitsOfGroup;
  const uint32_t* a = task.a + row * a_stride + run.first * kUnitsOfGroup;
  const float* const x_scales = task.scales + row * task.num_groups + run.first;
  const int32_t* const x_sums = task.sums + 2 * (row * task.num_groups + run.first);
  Vec total[kRows][kVecs];
  TANDEM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TANDEM_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      total[r][v] = run.is_first ? Zero() : Load(sums + r * kPanelColumns + strip + v * kVecLanes);
    }
  }
  for (int64_t g = 0; g < run.count; ++g) {
    const uint32_t* w = run.codes + g * run.stride + strip;
    const uint8_t* ahead = run.next + (g * kGroupWords + strip) * 4;
    for (int part = 0; part < kParts; ++part) {
      const int64_t scale_at = (g * kParts + part) * kPanelColumns + strip;
      int32_t x_sum[kRows];
      Vec sum[kRows][kVecs];
      TANDEM_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int32_t* const parts = x_sums + 2 * (r * task.num_groups + g);
        x_sum[r] = kParts == 1 ? parts[0] + parts[1] : parts[part];
        const Vec begin = SetInt(-run.zero * x_sum[r]);
        TANDEM_UNROLL
        for (int v = 0; v < kVecs; ++v) sum[r][v] = begin;
      }
      // Unrolled: around a loop gcc 12 copies the sums, which then do not fit into the registers.
      TANDEM_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        Units weight[kVecs];
        TANDEM_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          const int at = u * kPanelColumns + v * kVecLanes;
          weight[v] = LoadUnits(w + at);
          if constexpr (kPrefetches) __builtin_prefetch(ahead + at * 4, 0, 3);
        }
        TANDEM_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const auto broadcast = Int8Type::Spread(a + r * a_stride + u);
          TANDEM_UNROLL
          for (int v = 0; v < kVecs; ++v) {
            sum[r][v] = Int8Type::Dot(sum[r][v], broadcast, weight[v]);
          }
        }
      }
      a += kUnits;
      w += kUnits * kPanelColumns;
      ahead += kUnits * kPanelColumns * 4;
      TANDEM_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float x_scale = x_scales[r * task.num_groups + g];
        TANDEM_UNROLL
        for (int v = 0; v < kVecs; ++v) {
          const Vec scale = Mul(Load(run.scales + scale_at + v * kVecLanes), Set1(x_scale));
          Vec product = FromInts(sum[r][v], 0);
          if constexpr (kOffsets == Offsets::kZeros) {
            const Vec zero = Load(run.offsets + scale_at + v * kVecLanes);
            product = Sub(product, Mul(zero, Set1(static_cast<float>(x_sum[r]))));
          }
          total[r][v] = ExactFma(product, scale, total[r][v]);
          if constexpr (kOffsets == Offsets::kAdded) {
            const Vec offset = Load(run.offsets + scale_at + v * kVecLanes);
            const float x_total = x_scale * static_cast<float>(x_sum[r]);
            total[r][v] = ExactFma(offset, Set1(x_total), total[r][v]);
          }
        }
      }
    }
  }
  TANDEM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TANDEM_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      const int at = strip + v * kVecLanes;
      if (run.is_last) {
        StoreOutput<F32Type>(output, row + r, panel_column + at, total[r][v]);
      } else {
        Store(sums + r * kPanelColumns + at, total[r][v]);
      }
    }
  }
}

// Most rows of a tile: of two parts gcc 12 keeps the sums of five in registers.
template <int kParts>
constexpr int kMostRows = kParts == 2 && kBlockRows > 5 ? 5 : kBlockRows;

// The run against rows [row, row + rows), rows at most kMostRows.
template <int kParts, Offsets kOffsets, bool kPrefetches>
void BlockTiles(const BlockTask& task, const LinearTask& output, const BlockRun& run, int64_t row,
                int64_t rows, int64_t column, float* sums) {
  const auto tiles = [&]<int kRows>() {
    constexpr int kVecs = kRows <= kWideBlockRows ? kVecsOfPanel : kBlockStripVecs;
    for (int strip = 0; strip < kPanelColumns; strip += kVecs * kVecLanes) {
      BlockTile<kRows, kVecs, kParts, kOffsets, kPrefetches>(task, output, run, row, column, strip,
                                                             sums);
    }
  };
  [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    (void)((rows == kLess + 1 && (tiles.template operator()<kLess + 1>(), true)) || ...);
  }
  (std::make_integer_sequence<int, kMostRows<kParts>>());
}

// All rows against a run; later ones find it in a cache.
struct VectorBlocks {
  template <int kParts, Offsets kOffsets>
  static void Rows(const BlockTask& task, const LinearTask& output, const BlockRun& run,
                   int64_t row_begin, int64_t row_end, int64_t column, float* sums) {
    const int64_t rows = row_end - row_begin;
    const int64_t num_tiles = (rows + kMostRows<kParts> - 1) / kMostRows<kParts>;
    const int64_t tile_rows = (rows + num_tiles - 1) / num_tiles;
    for (int64_t row = row_begin; row < row_end; row += tile_rows) {
      const int64_t count = row_end - row < tile_rows ? row_end - row : tile_rows;
      float* const row_sums = sums + (row - row_begin) * kPanelColumns;
      if (row == row_begin) {
        BlockTiles<kParts, kOffsets, kPrefetchWeights>(task, output, run, row, count, column,
                                                       row_sums);
      } else {
        BlockTiles<kParts, kOffsets, false>(task, output, run, row, count, column, row_sums);
      }
    }
  }
};

template <class Blocks>
void RunOfPanel(const BlockTask& task, const BlockPanel& panel, BlockRun run, int64_t row_begin,
                int64_t row_end, float* sums, uint32_t* room) {
  const BlockPanelShape& shape = *panel.shape;
  const int64_t groups_of_block = shape.format.size / kGroupWeights;
  auto* const scales = reinterpret_cast<float*>(room + kManyGroups * kGroupWords);
  float* const offsets = scales + 2 * kManyGroups * kPanelColumns;
  const uint8_t* const begin = panel.bytes + run.first / groups_of_block * shape.num_bytes;
  // One code per byte is what products read.
  const bool is_direct = shape.format.bits == 8 && groups_of_block == 1;
  run.codes = is_direct ? reinterpret_cast<const uint32_t*>(begin + shape.codes) : room;
  run.stride = is_direct ? shape.num_bytes / 4 : kGroupWords;
  run.scales = scales;
  run.offsets = offsets;
  run.zero = shape.zero;
  const int64_t num_blocks = run.count / groups_of_block;
  run.next = begin + num_blocks * shape.num_bytes;
  UnpackScales(shape, begin, num_blocks, scales, offsets);
  for (int64_t i = 0; i < num_blocks && !is_direct; ++i) {
    const uint8_t* const block = begin + i * shape.num_bytes;
    uint32_t* const to = room + i * groups_of_block * kGroupWords;
    if (shape.format.bits == 8) {
      __builtin_memcpy(to, block + shape.codes, groups_of_block * kGroupWords * 4);
    } else {
      UnpackCodes(shape, block, to);
    }
  }
  LinearTask output = task.output;
  output.n = panel.column + panel.num_columns;
  const auto rows = [&]<int kParts, Offsets kOffsets>() {
    Blocks::template Rows<kParts, kOffsets>(task, output, run, row_begin, row_end, panel.column,
                                            sums);
  };
  const bool has_offsets = shape.has_offset, has_zeros = shape.format.has_zeros();
  if (shape.kernel_group() == 16) {
    return has_offsets ? rows.template operator()<2, Offsets::kAdded>()
                       : rows.template operator()<2, Offsets::kNone>();
  }
  if (has_zeros) return rows.template operator()<1, Offsets::kZeros>();
  return has_offsets ? rows.template operator()<1, Offsets::kAdded>()
                     : rows.template operator()<1, Offsets::kNone>();
}

// The columns of panels [panel_begin, panel_end) for rows [row_begin, row_end); room: BlockRoom of
// these rows, 64-byte aligned.
template <class Blocks>
void LinearBlocks(const BlockTask& task, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                  int64_t panel_end, float* room) {
  const int64_t rows = row_end - row_begin;
  const int64_t most = rows <= kFewRows ? kFewGroups : kManyGroups;
  auto* const units = reinterpret_cast<uint32_t*>(room + rows * kPanelColumns);
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    for (int64_t first = 0; first < task.num_groups; first += most) {
      BlockRun run = {};
      run.first = first;
      run.count = task.num_groups - first < most ? task.num_groups - first : most;
      run.is_first = first == 0;
      run.is_last = first + run.count == task.num_groups;
      RunOfPanel<Blocks>(task, task.panels[p], run, row_begin, row_end, room, units);
    }
  }
}

}  // namespace
}  // namespace tandem
