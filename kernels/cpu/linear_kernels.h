#pragma once

// Matrix products, on the vec_*.h of the including isa_*.cc.
//
// One loop, AccumulateTile, does all of them: rows of broadcast units times vectors of weight
// units, over units in ascending order. An output element is thus one chain of Type::Dot in one
// lane whatever the number of rows, so its bits do not depend on the rows it shares a tile with.
// Splitting the chain (K blocks) keeps the partial sum in float32, which changes no bit either.

#include "kernels/cpu/adapter_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/math_kernels.h"

namespace tandem {
namespace {

// Every loop over accumulators is unrolled by pragma: otherwise gcc 12 keeps the array in memory
// and the kernel runs at a third of its speed.
#define TANDEM_UNROLL _Pragma("GCC unroll 16")

constexpr int64_t kFewRows = 96;  // more rows walk blocks that stay in L2
// With 1024 units of K they fill most of an L2 of 1 MiB.
constexpr int kPassRows = 204;

// How far ahead of its use a step's line is prefetched when there is only one tile: 4 KiB.
constexpr int kPrefetchSteps = 16;

// sum[r][v] += a[r, :] . w[:, v], `units` steps; w_stride: units from step to step.
// a of row r at step s: a[s * kTileRows + r] when packed, a[r * a_stride + s] otherwise.
// w: the columns in kParts places, an equal share of the kVecs vectors in each.
// kLines: cache lines to prefetch per step, one after another from `ahead` on.
// kMasked: numbers of w from the valid-th of K on count as zero.
template <class Type, bool kPacked, int kLines = 0, bool kMasked = false, int kRows, int kVecs,
          int kParts>
inline __attribute__((always_inline)) void AccumulateTile(
    const uint32_t* a, int64_t a_stride, const uint32_t* const (&w)[kParts], int64_t w_stride,
    int64_t units, Vec (&sum)[kRows][kVecs], const uint32_t* ahead = nullptr, int valid = 0) {
  constexpr int kPartVecs = kVecs / kParts;
  for (int64_t s = 0; s < units; ++s) {
    TANDEM_UNROLL
    for (int line = 0; line < kLines; ++line) {
      __builtin_prefetch(ahead + (s * kLines + line) * kVecLanes, 0, 3);
    }
    Units weight[kVecs];
    TANDEM_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      weight[v] = LoadUnits(w[v / kPartVecs] + s * w_stride + v % kPartVecs * kVecLanes);
    }
    if constexpr (kMasked) {
      const int64_t left = valid - s * Type::kStep;
      const uint32_t mask = left >= Type::kStep ? 0xffffffff : left <= 0 ? 0 : 0xffff;
      TANDEM_UNROLL
      for (int v = 0; v < kVecs; ++v) weight[v] = AndUnits(weight[v], mask);
    }
    TANDEM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto broadcast = Type::Spread(kPacked ? a + s * kTileRows + r : a + r * a_stride + s);
      TANDEM_UNROLL
      for (int v = 0; v < kVecs; ++v) sum[r][v] = Type::Dot(sum[r][v], broadcast, weight[v]);
    }
  }
}

// Calls function.operator()<rows>() for rows in 1 .. kTileRows.
template <class F>
inline __attribute__((always_inline)) void WithRows(int64_t rows, F function) {
  switch (rows) {
    case 1:
      return function.template operator()<1>();
    case 2:
      return function.template operator()<2>();
    case 3:
      if constexpr (kTileRows >= 3) return function.template operator()<3>();
      return;
    case 4:
      if constexpr (kTileRows >= 4) return function.template operator()<4>();
      return;
    case 5:
      if constexpr (kTileRows >= 5) return function.template operator()<5>();
      return;
    default:
      if constexpr (kTileRows >= 6) return function.template operator()<6>();
      return;
  }
}

// An output from its sum: scaled, with its bias.
template <class Type>
inline __attribute__((always_inline)) Vec Finished(const LinearTask& task, int64_t row,
                                                   int64_t column, int64_t count, Vec value) {
  if constexpr (Type::kStep == Int8Type::kStep) {
    const Vec scale = Mul(Set1(task.row_scale[row]), LoadN(task.column_scale + column, count));
    value = Mul(FromInts(value, -kInt8Zero * task.row_sum[row]), scale);
  }
  if (task.bias != nullptr) value = Add(value, LoadN(task.bias + column, count));
  return value;
}

inline __attribute__((always_inline)) void Put(const LinearTask& task, int64_t row, int64_t column,
                                               int64_t count, Vec value) {
  const int64_t at = row * task.out_stride + column;
  if (task.out_kind == OutKind::kBf16) {
    StoreN(static_cast<uint16_t*>(task.out) + at, value, count);
    return;
  }
  float* out = static_cast<float*>(task.out) + at;
  if (task.out_kind == OutKind::kF32Add) value = Add(LoadN(out, count), value);
  StoreN(out, value, count);
}

// Inlined: a call would spill all sums not yet stored to the stack.
template <class Type>
inline __attribute__((always_inline)) void StoreOutput(const LinearTask& task, int64_t row,
                                                       int64_t column, Vec value) {
  const int64_t left = task.n - column;
  if (left <= 0) return;
  const int64_t count = left < kVecLanes ? left : kVecLanes;
  Put(task, row, column, count, Finished<Type>(task, row, column, count, value));
}

// What StoreOutput does, with the rows' terms if there are any, for the sums of a tile, [rows][64],
// of one panel.
template <class Type>
void StoreSums(const LinearTask& task, int64_t row, int64_t rows, int64_t panel,
               const float* sums) {
  for (int64_t r = row; r < row + rows; ++r) {
    for (int v = 0; v < kPanelColumns; v += kVecLanes) {
      const int64_t column = panel * kPanelColumns + v;
      const int64_t left = task.n - column;
      if (left <= 0) break;
      const int64_t count = left < kVecLanes ? left : kVecLanes;
      Vec value = Load(sums + (r - row) * kPanelColumns + v);
      value = Finished<Type>(task, r, column, count, value);
      if (task.terms != nullptr && task.terms[r].strips != nullptr) {
        value = Add(value, TermOf(task, r, column / kVecLanes));
      }
      Put(task, r, column, count, value);
    }
  }
}

// out = activation(gate) * up of one tile: sums, [rows][64], as GateKind says.
template <class Out>
void StoreGated(const LinearTask& task, int64_t row, int64_t rows, int64_t column,
                const float* sums, Out* out) {
  constexpr int kHalf = kPanelColumns / 2;
  for (int64_t r = 0; r < rows; ++r) {
    for (int v = 0; v < kHalf; v += kVecLanes) {
      const int64_t left = task.n - column - v;
      if (left <= 0) break;
      const int64_t count = left < kVecLanes ? left : kVecLanes;
      Vec gate = Load(sums + r * kPanelColumns + v);
      Vec up = Load(sums + r * kPanelColumns + kHalf + v);
      if (task.bias != nullptr) {
        gate = Add(gate, LoadN(task.bias + column + v, count));
        up = Add(up, LoadN(task.bias + task.n + column + v, count));
      }
      if (task.terms != nullptr && task.terms[row + r].strips != nullptr) {
        const int64_t strip = (column / kHalf * kPanelColumns + v) / kVecLanes;
        gate = Add(gate, TermOf(task, row + r, strip));
        up = Add(up, TermOf(task, row + r, strip + kHalf / kVecLanes));
      }
      const Vec activated = task.gate == GateKind::kSilu ? Silu(gate) : Gelu(gate);
      StoreN(out + (row + r) * task.out_stride + column + v, Mul(activated, up), count);
    }
  }
}

// The outputs of a tile from its sums in memory, [rows][64], of one panel.
template <class Type>
void StoreTile(const LinearTask& task, int64_t row, int64_t rows, int64_t panel,
               const float* sums) {
  if (task.gate == GateKind::kNone) return StoreSums<Type>(task, row, rows, panel, sums);
  const int64_t column = panel * (kPanelColumns / 2);
  if (task.out_kind == OutKind::kBf16) {
    StoreGated(task, row, rows, column, sums, static_cast<uint16_t*>(task.out));
  } else {
    StoreGated(task, row, rows, column, sums, static_cast<float*>(task.out));
  }
}

// One tile of rows against `units` steps of one panel. `partial`, [rows][64], carries the sums from
// one K block to the next and from the product to the gate.
template <class Type, int kRows, bool kPacked, int kLines>
void PanelTile(const LinearTask& task, const uint32_t* a, const uint32_t* w, int64_t units,
               int64_t row, int64_t panel, float* partial, bool is_first, bool is_last,
               const uint32_t* ahead) {
  // Gates and terms of adapters are applied to sums in memory.
  const bool is_gated = task.gate != GateKind::kNone;
  const bool stores_sums = !is_last || is_gated || task.terms != nullptr;
  for (int strip = 0; strip < kPanelColumns; strip += kStripVecs * kVecLanes) {
    Vec sum[kRows][kStripVecs];
    TANDEM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TANDEM_UNROLL
      for (int v = 0; v < kStripVecs; ++v) {
        sum[r][v] = is_first ? Zero() : Load(partial + r * kPanelColumns + strip + v * kVecLanes);
      }
    }
    AccumulateTile<Type, kPacked, kLines>(a, task.a_stride, {w + strip}, kPanelColumns, units, sum,
                                          ahead);
    TANDEM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TANDEM_UNROLL
      for (int v = 0; v < kStripVecs; ++v) {
        const int at = strip + v * kVecLanes;
        if (stores_sums) {
          Store(partial + r * kPanelColumns + at, sum[r][v]);
        } else {
          StoreOutput<Type>(task, row + r, panel * kPanelColumns + at, sum[r][v]);
        }
      }
    }
  }
  if (!is_last || !stores_sums) return;
  StoreTile<Type>(task, row, kRows, panel, partial);
}

// One block of a panel against all tiles of a block of rows. The first tiles together prefetch the
// next block, `ahead`: otherwise the first tile would run at the speed of DRAM, and only then the
// others at that of the arithmetic.
template <class Type, int kLines>
void PanelBlock(const LinearTask& task, int64_t row_begin, int64_t row_end, const uint32_t* w,
                int64_t panel, int64_t k, int64_t units, float* partial, const uint32_t* ahead) {
  const bool is_first = k == 0;
  const bool is_last = k + units == task.k_units;
  const uint32_t* ahead_end = ahead + units * kPanelColumns;
  for (int64_t row = row_begin; row < row_end; row += task.tile_rows) {
    const int64_t rows = task.m - row < task.tile_rows ? task.m - row : task.tile_rows;
    const uint32_t* a = task.a + (row / task.tile_rows * task.k_units + k) * kTileRows;
    float* sums = partial + (row - row_begin) * kPanelColumns;
    WithRows(rows, [&]<int kRows>() {
      if (ahead < ahead_end) {
        PanelTile<Type, kRows, true, kLines>(task, a, w, units, row, panel, sums, is_first, is_last,
                                             ahead);
      } else {
        PanelTile<Type, kRows, true, 0>(task, a, w, units, row, panel, sums, is_first, is_last,
                                        nullptr);
      }
    });
    ahead += units * kLines * kVecLanes;
  }
}

// The panels of a group pass over one block of K after another, so that the activations of that
// block are fetched into L2 once per group.
template <class Type>
void Linear(const LinearTask& task, int64_t row_begin, int64_t row_end, int64_t panel_begin,
            int64_t panel_end, float* partial) {
  constexpr int kPanelLines = kPanelColumns / kVecLanes;
  constexpr int kOn = kPrefetchWeights ? 1 : 0;
  const int64_t rows = row_end - row_begin;
  auto weights = [&](int64_t panel, int64_t k) {
    return task.weight + ((panel - task.first_panel) * task.k_units + k) * kPanelColumns;
  };
  if (!task.packed) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const uint32_t* w = weights(panel, 0);
      WithRows(task.m, [&]<int kRows>() {
        PanelTile<Type, kRows, false, kOn * kPanelLines>(task, task.a, w, task.k_units, 0, panel,
                                                         partial, true, true,
                                                         w + kPrefetchSteps * kPanelColumns);
      });
    }
    return;
  }
  // A single tile reads a block once, so no cache needs to keep it. Two or three take turns after
  // few steps, less than a core looks ahead: DRAM would rest while the others walk a long block.
  // More walk a block that fits L1 together with the next one, as each stores its sums after it.
  const int64_t max_block = rows <= kTileRows       ? task.k_units
                            : rows <= 3 * kTileRows ? 16
                            : rows <= kFewRows      ? 128
                                                    : kBlockUnits;
  const int64_t blocks = (task.k_units + max_block - 1) / max_block;
  const int64_t block = (task.k_units + blocks - 1) / blocks;
  const int64_t at_once = rows <= kFewRows ? 1 : kPanelsAtOnce;
  for (int64_t group = panel_begin; group < panel_end; group += at_once) {
    const int64_t group_end = group + at_once < panel_end ? group + at_once : panel_end;
    for (int64_t k = 0; k < task.k_units; k += block) {
      const int64_t units = task.k_units - k < block ? task.k_units - k : block;
      for (int64_t panel = group; panel < group_end; ++panel) {
        const bool is_end = k + units == task.k_units;
        const uint32_t* w = weights(panel, k);
        const uint32_t* ahead = panel + 1 < group_end ? weights(panel + 1, k)
                                : is_end              ? weights(group_end, 0)
                                                      : weights(group, k + units);
        float* sums = partial + (panel - group) * rows * kPanelColumns;
        if (rows <= kTileRows) {
          PanelBlock<Type, kOn * kPanelLines>(task, row_begin, row_end, w, panel, k, units, sums,
                                              ahead);
        } else if (rows <= 3 * kTileRows) {
          PanelBlock<Type, kOn * kPanelLines / 2>(task, row_begin, row_end, w, panel, k, units,
                                                  sums, ahead);
        } else {
          PanelBlock<Type, kOn>(task, row_begin, row_end, w, panel, k, units, sums, ahead);
        }
      }
    }
  }
}

template <class Type>
void PackRows(const void* x, int64_t stride, int64_t rows, int64_t k, int64_t /*height*/,
              uint32_t* tile) {
  using Element = typename Type::Element;
  auto row = [&](int64_t r) { return static_cast<const Element*>(x) + r * stride; };
  const int64_t units = (k + Type::kStep - 1) / Type::kStep;
  const int64_t whole = k / Type::kStep;
  int64_t u = 0;
  for (; u + kVecLanes <= whole; u += kVecLanes) {
    Units vecs[kTileRows];
    TANDEM_UNROLL
    for (int r = 0; r < kTileRows; ++r) {
      const Element* from = row(r < rows ? r : rows - 1) + u * Type::kStep;
      vecs[r] = LoadUnits(reinterpret_cast<const uint32_t*>(from));
    }
    StoreInterleaved(vecs, tile + u * kTileRows);
  }
  for (; u < whole; ++u) {
    for (int64_t r = 0; r < rows; ++r) {
      __builtin_memcpy(tile + u * kTileRows + r, row(r) + u * Type::kStep, sizeof(uint32_t));
    }
  }
  if (whole == units) return;
  for (int64_t r = 0; r < rows; ++r) {
    uint32_t last = 0;
    __builtin_memcpy(&last, row(r) + whole * Type::kStep, sizeof(Element));
    tile[whole * kTileRows + r] = last;
  }
}

}  // namespace
}  // namespace tandem
