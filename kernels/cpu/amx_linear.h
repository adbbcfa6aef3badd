#pragma once

// Matrix products on tiles (amx_tiles.h), with the panels, tasks and outputs of linear_kernels.h.

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/integer_kernels.h"
#include "kernels/cpu/linear_kernels.h"

namespace tandem {
namespace {

constexpr RowForm kTiledRows = {kTileSide, 1, kTileSide, 256};
constexpr int64_t kSumBytes = kPanelColumns * sizeof(float);  // of a row of sums

// One block of a panel, for any rows.
struct TiledBlock {
  const uint32_t* weights;
  int64_t steps;         // whole ones of kPanelStep
  const uint32_t* tail;  // the last units of K, filled up with zeros; or null
  bool is_first;
};

// Tiles of rows, which follow each other at `stride` units, from the block's first step of K.
struct TiledRowsOf {
  const uint32_t* a;
  int64_t stride;
  int64_t height;

  const uint32_t* Tile(int64_t tile, int64_t step) const {
    return a + tile * stride + step * height * kTileSide;
  }
};

// Prefetches into L2: of L1 the products need every line.
template <int kLines>
inline __attribute__((always_inline)) void PrefetchLines(const uint32_t* ahead) {
  TANDEM_UNROLL
  for (int i = 0; i < (kLines < 16 ? kLines : 16); ++i) {
    TANDEM_UNROLL
    for (int j = 0; j < kLines; j += 16) {
      __builtin_prefetch(ahead + (i + j) * kVecLanes, 0, 2);
    }
  }
}

// Two tiles of rows against 32 columns: four products for four loads, which is what the ports can
// do. sums: of the first row and column.
template <class Arithmetic, int kLines>
void TwoByTwo(const TiledBlock& block, const TiledRowsOf& rows, int strip, float* sums,
              const uint32_t* ahead) {
  float* const below = sums + rows.height * kPanelColumns;
  BeforeTileLoads();
  if (block.is_first) {
    ZeroTile<0>();
    ZeroTile<1>();
    ZeroTile<2>();
    ZeroTile<3>();
  } else {
    LoadTile<0>(sums, kSumBytes);
    LoadTile<1>(sums + kTileSide, kSumBytes);
    LoadTile<2>(below, kSumBytes);
    LoadTile<3>(below + kTileSide, kSumBytes);
  }
  const auto multiply = [&](const uint32_t* w, int64_t step) __attribute__((always_inline)) {
    constexpr int64_t kWeightBytes = kPanelColumns * sizeof(uint32_t);
    LoadTile<6>(w + strip, kWeightBytes);
    LoadTile<7>(w + strip + kTileSide, kWeightBytes);
    LoadTile<4>(rows.Tile(0, step), 64);
    Arithmetic::template Multiply<0, 4, 6>();
    Arithmetic::template Multiply<1, 4, 7>();
    LoadTile<5>(rows.Tile(1, step), 64);
    Arithmetic::template Multiply<2, 5, 6>();
    Arithmetic::template Multiply<3, 5, 7>();
  };
  for (int64_t step = 0; step < block.steps; ++step) {
    PrefetchLines<kLines>(ahead + step * kLines * kVecLanes);
    multiply(block.weights + step * kPanelStep, step);
  }
  if (block.tail != nullptr) multiply(block.tail, block.steps);
  StoreTileTo<0>(sums, kSumBytes);
  StoreTileTo<1>(sums + kTileSide, kSumBytes);
  StoreTileTo<2>(below, kSumBytes);
  StoreTileTo<3>(below + kTileSide, kSumBytes);
}

// One tile of rows against all columns of the panel.
template <class Arithmetic, int kLines>
void OneByFour(const TiledBlock& block, const TiledRowsOf& rows, float* sums,
               const uint32_t* ahead) {
  BeforeTileLoads();
  if (block.is_first) {
    ZeroTile<0>();
    ZeroTile<1>();
    ZeroTile<2>();
    ZeroTile<3>();
  } else {
    LoadTile<0>(sums, kSumBytes);
    LoadTile<1>(sums + kTileSide, kSumBytes);
    LoadTile<2>(sums + 2 * kTileSide, kSumBytes);
    LoadTile<3>(sums + 3 * kTileSide, kSumBytes);
  }
  const auto multiply = [&](const uint32_t* w, int64_t step) __attribute__((always_inline)) {
    constexpr int64_t kWeightBytes = kPanelColumns * sizeof(uint32_t);
    LoadTile<4>(rows.Tile(0, step), 64);
    LoadTile<6>(w, kWeightBytes);
    Arithmetic::template Multiply<0, 4, 6>();
    LoadTile<7>(w + kTileSide, kWeightBytes);
    Arithmetic::template Multiply<1, 4, 7>();
    LoadTile<6>(w + 2 * kTileSide, kWeightBytes);
    Arithmetic::template Multiply<2, 4, 6>();
    LoadTile<7>(w + 3 * kTileSide, kWeightBytes);
    Arithmetic::template Multiply<3, 4, 7>();
  };
  for (int64_t step = 0; step < block.steps; ++step) {
    PrefetchLines<kLines>(ahead + step * kLines * kVecLanes);
    multiply(block.weights + step * kPanelStep, step);
  }
  if (block.tail != nullptr) multiply(block.tail, block.steps);
  StoreTileTo<0>(sums, kSumBytes);
  StoreTileTo<1>(sums + kTileSide, kSumBytes);
  StoreTileTo<2>(sums + 2 * kTileSide, kSumBytes);
  StoreTileTo<3>(sums + 3 * kTileSide, kSumBytes);
}

// One block of a panel against all tiles of [row_begin, row_end). The passes over it together
// prefetch the `ahead_units` from `ahead` on, kLines lines per step.
template <class Arithmetic, int kLines>
void TiledPanelBlock(const LinearTask& task, int64_t row_begin, int64_t row_end, int64_t panel,
                     int64_t first_step, const TiledBlock& block, float* sums, bool is_last,
                     const uint32_t* ahead, int64_t ahead_units) {
  using Type = typename Arithmetic::Type;
  const int64_t height = task.tile_rows;
  const uint32_t* const ahead_end = ahead + ahead_units;
  const auto pass = [&](auto prefetching, auto plain) {
    if (ahead < ahead_end) {
      prefetching();
    } else {
      plain();
    }
    ahead += block.steps * kLines * kVecLanes;
  };
  for (int64_t row = row_begin; row < row_end;) {
    const int64_t tile_units = kTileSide * task.a_stride;
    const TiledRowsOf rows = {task.a + row / height * tile_units + first_step * height * kTileSide,
                              tile_units, height};
    float* const tile_sums = sums + (row - row_begin) * kPanelColumns;
    const int64_t count = row + height < row_end ? 2 * height : height;
    if (count == height) {
      pass([&] { OneByFour<Arithmetic, kLines>(block, rows, tile_sums, ahead); },
           [&] { OneByFour<Arithmetic, 0>(block, rows, tile_sums, nullptr); });
    } else {
      for (int strip = 0; strip < kPanelColumns; strip += 2 * kTileSide) {
        float* const at = tile_sums + strip;
        pass([&] { TwoByTwo<Arithmetic, kLines>(block, rows, strip, at, ahead); },
             [&] { TwoByTwo<Arithmetic, 0>(block, rows, strip, at, nullptr); });
      }
    }
    if (is_last) {
      const int64_t left = row_end - row;
      StoreTile<Type>(task, row, left < count ? left : count, panel, tile_sums);
    }
    row += count;
  }
}

// The steps of K that rows walk before the next rows do: one tile of rows reads a panel once; few
// tiles walk a block that stays in L1; for many it matters more that sums are stored rarely.
inline int64_t StepsOfBlock(int64_t tiles, int64_t steps) {
  if (steps == 0) return 1;
  const int64_t most = tiles == 1 ? steps : tiles <= 4 ? 8 : 32;
  const int64_t blocks = (steps + most - 1) / most;
  return (steps + blocks - 1) / blocks;
}

template <class Arithmetic>
void TiledLinear(const LinearTask& task, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                 int64_t panel_end, float* partial) {
  const Tiles shape{TileShape(task.tile_rows)};
  const int64_t tiles = (row_end - row_begin + task.tile_rows - 1) / task.tile_rows;
  const int64_t sums_of_panel = tiles * task.tile_rows * kPanelColumns;
  const int64_t tail_units = task.k_units % kTileSide, steps = task.k_units / kTileSide;
  const int64_t max_steps = StepsOfBlock(tiles, steps);
  const int64_t at_once = tiles <= 4 ? 1 : kPanelsAtOnce;
  alignas(64) uint32_t tail[kPanelStep];
  const auto weights = [&](int64_t panel, int64_t step) {
    return task.weight +
           ((panel - task.first_panel) * task.k_units + step * kTileSide) * kPanelColumns;
  };
  for (int64_t group = panel_begin; group < panel_end; group += at_once) {
    const int64_t group_end = group + at_once < panel_end ? group + at_once : panel_end;
    // A depth of less than one step has one block, which is its tail.
    for (int64_t step = 0; step == 0 || step < steps; step += max_steps) {
      const int64_t count = steps - step < max_steps ? steps - step : max_steps;
      const bool is_last = step + count == steps;
      for (int64_t panel = group; panel < group_end; ++panel) {
        TiledBlock block = {weights(panel, step), count, nullptr, step == 0};
        if (is_last && tail_units > 0) {
          const int64_t units = tail_units * kPanelColumns;
          __builtin_memcpy(tail, weights(panel, steps), units * sizeof(uint32_t));
          __builtin_memset(tail + units, 0, (kPanelStep - units) * sizeof(uint32_t));
          block.tail = tail;
        }
        const uint32_t* ahead = panel + 1 < group_end ? weights(panel + 1, step)
                                : is_last             ? weights(group_end, 0)
                                                      : weights(group, step + count);
        float* const sums = partial + (panel - group) * sums_of_panel;
        const auto multiply = [&]<int kLines>() {
          TiledPanelBlock<Arithmetic, kLines>(task, row_begin, row_end, panel, step, block, sums,
                                              is_last, ahead, count * kPanelStep);
        };
        if (tiles == 1) {
          // Its passes are the panel: what it reads 16 KiB later.
          ahead = block.weights + 4 * kPanelStep;
          multiply.template operator()<64>();
        } else if (tiles <= 3) {
          multiply.template operator()<32>();
        } else {
          multiply.template operator()<16>();
        }
      }
    }
  }
}

// int4 panels for many rows, unpacked a block at a time into memory that stays in L2. Sums are
// exact, so a few rows have the same bits on vectors.
inline void TiledInt4(const LinearTask& task, int64_t row_begin, int64_t row_end,
                      int64_t panel_begin, int64_t panel_end, float* partial) {
  if (!task.packed) {
    const KernelTable& vectors = Avx512Bf16Kernels();
    return vectors.linear_int4(task, row_begin, row_end, panel_begin, panel_end, partial);
  }
  constexpr int64_t kBlock = kBlockUnits / 2;
  constexpr int64_t kAhead = 4096;  // bytes
  const Tiles shape{TileShape(task.tile_rows)};
  const int64_t tiles = (row_end - row_begin + task.tile_rows - 1) / task.tile_rows;
  auto* const units = reinterpret_cast<uint32_t*>(partial + tiles * task.tile_rows * kPanelColumns);
  const int64_t steps = task.k_units / 2;
  const int64_t groups = (steps + task.group_steps - 1) / task.group_steps;
  const int64_t panel_bytes = groups * kPanelColumns + steps * kCodeBytes;
  const int64_t group_bytes = kPanelColumns + task.group_steps * kCodeBytes;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(task.weight) + panel * panel_bytes;
    for (int64_t k = 0; k < task.k_units; k += kBlock) {
      const int64_t count = task.k_units - k < kBlock ? task.k_units - k : kBlock;
      const int64_t filled = kTiledRows.RowUnits(count);
      UnpackInt4(codes + k / 2 / task.group_steps * group_bytes, count / 2, task.group_steps,
                 kAhead, units);
      __builtin_memset(units + count * kPanelColumns, 0,
                       (filled - count) * kPanelColumns * sizeof(uint32_t));
      const TiledBlock block = {units, filled / kTileSide, nullptr, k == 0};
      TiledPanelBlock<Int8Tiles, 0>(task, row_begin, row_end, panel, k / kTileSide, block, partial,
                                    k + count == task.k_units, units, 0);
    }
  }
}

// As quantize_rows of TypedKernels.
template <class Type>
void QuantizeTiledRows(const void* x, int64_t stride, int64_t rows, int64_t k, int64_t k_units,
                       int64_t height, uint32_t* units, float* scales, int32_t* sums) {
  const auto in_tiles = [&](int64_t r, int64_t u) {
    return units + (u / kTileSide * height + r) * kTileSide + u % kTileSide;
  };
  const auto side_by_side = [&](int64_t r, int64_t u) { return units + r * k_units + u; };
  if (height > 0) {
    QuantizeRowsTo<Type>(x, stride, rows, k, k_units, scales, sums, in_tiles);
  } else {
    QuantizeRowsTo<Type>(x, stride, rows, k, k_units, scales, sums, side_by_side);
  }
}

// As pack_rows of TypedKernels.
template <class Type>
void PackTiledRows(const void* x, int64_t stride, int64_t rows, int64_t k, int64_t height,
                   uint32_t* tile) {
  using Element = typename Type::Element;
  constexpr int64_t kNumbers = kTileSide * Type::kStep;
  for (int64_t r = 0; r < rows; ++r) {
    const Element* from = static_cast<const Element*>(x) + r * stride;
    uint32_t* to = tile + r * kTileSide;
    int64_t i = 0;
    for (; i + kNumbers <= k; i += kNumbers, to += height * kTileSide) {
      StoreUnits(to, LoadUnits(reinterpret_cast<const uint32_t*>(from + i)));
    }
    if (i == k) continue;
    __builtin_memset(to, 0, kTileSide * sizeof(uint32_t));
    __builtin_memcpy(to, from + i, (k - i) * sizeof(Element));
  }
}

}  // namespace
}  // namespace tandem
