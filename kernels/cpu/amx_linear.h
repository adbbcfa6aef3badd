#pragma once

// Matrix products on tiles (amx_tiles.h), with the panels, tasks and outputs of linear_kernels.h.

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/integer_kernels.h"
#include "kernels/cpu/linear_kernels.h"

namespace tandem {
namespace {

// At most 512 rows pass over a panel together: its weights come from DRAM once for them, and their
// sums of a group of panels stay in L2. Two tiles share what they load of a panel: four low ones
// take 0.93 of the time of three.
constexpr RowForm kTiledRows = {kTileSide, 1, kTileSide, 512, 4};
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
  // Of two tiles' next `steps` steps, one tile after the other.
  const uint32_t* UnitsFrom(int64_t at, int64_t steps) const {
    const int64_t of_tile = steps * height * kTileSide, later = at - of_tile;
    return later < 0 ? a + at : later < of_tile ? a + stride + later : a;
  }
};

inline TiledRowsOf RowsAt(const LinearTask& task, int64_t row, int64_t step) {
  const int64_t stride = kTileSide * task.a_stride;
  return {task.a + row / task.tile_rows * stride + step * task.tile_rows * kTileSide, stride,
          task.tile_rows};
}

constexpr int kLinesOfStep = kPanelStep / kVecLanes;

// Prefetches lines [kBegin, kEnd) into a cache: as locality of __builtin_prefetch.
constexpr int kL1 = 3, kL2 = 2;
template <int kBegin, int kEnd, int kCache>
inline __attribute__((always_inline)) void PrefetchLines(const uint32_t* ahead) {
  TANDEM_UNROLL
  for (int i = kBegin; i < kEnd; ++i) __builtin_prefetch(ahead + i * kVecLanes, 0, kCache);
}
// The part-th of four parts of kLines. Each stands beside a tile's load, because many prefetches at
// once fill the buffers of all loads: from DRAM 10.4 GB/s a core, in one place 9.2. Whole steps go
// to L1, since then one tile of rows reads each weight once and soon; else of L1 the products need
// every line.
template <int kLines, int kPart>
inline __attribute__((always_inline)) void PrefetchPart(const uint32_t* ahead) {
  constexpr int kBegin = kLines * kPart / 4, kEnd = kLines * (kPart + 1) / 4;
  PrefetchLines<kBegin, kEnd, kLines == kLinesOfStep ? kL1 : kL2>(ahead);
}

// Two tiles of rows against 32 columns: four products for four loads, which is what the ports can
// do. sums: of the first row and column. Each step fetches kLines lines of weights from `ahead` on
// and kRowLines of activations from `rows_ahead` on.
template <class Arithmetic, int kLines, int kRowLines = 0>
void TwoByTwo(const TiledBlock& block, const TiledRowsOf& rows, int strip, float* sums,
              const uint32_t* ahead, const uint32_t* rows_ahead = nullptr) {
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
  const auto multiply = [&]<int kFetched, int kRowsFetched>(const uint32_t* w, int64_t step)
      __attribute__((always_inline)) {
    constexpr int64_t kWeightBytes = kPanelColumns * sizeof(uint32_t);
    const uint32_t* const next = ahead + step * kLines * kVecLanes;
    const uint32_t* const next_rows = rows_ahead + step * kRowLines * kVecLanes;
    StreamTile<6>(w + strip, kWeightBytes);
    PrefetchPart<kFetched, 0>(next);
    LoadTile<4>(rows.Tile(0, step), 64);
    PrefetchPart<kFetched, 1>(next);
    StreamTile<7>(w + strip + kTileSide, kWeightBytes);
    PrefetchPart<kFetched, 2>(next);
    LoadTile<5>(rows.Tile(1, step), 64);
    PrefetchPart<kFetched, 3>(next);
    Arithmetic::template Multiply<0, 4, 6>();
    Arithmetic::template Multiply<1, 4, 7>();
    PrefetchLines<0, kRowsFetched, kL2>(next_rows);
    Arithmetic::template Multiply<2, 5, 6>();
    Arithmetic::template Multiply<3, 5, 7>();
  };
  for (int64_t step = 0; step < block.steps; ++step) {
    multiply.template operator()<kLines, kRowLines>(block.weights + step * kPanelStep, step);
  }
  if (block.tail != nullptr) multiply.template operator()<0, 0>(block.tail, block.steps);
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
  const auto multiply = [&]<int kFetched>(const uint32_t* w, int64_t step)
      __attribute__((always_inline)) {
    constexpr int64_t kWeightBytes = kPanelColumns * sizeof(uint32_t);
    const uint32_t* const next = ahead + step * kLines * kVecLanes;
    LoadTile<4>(rows.Tile(0, step), 64);
    StreamTile<6>(w, kWeightBytes);
    PrefetchPart<kFetched, 0>(next);
    Arithmetic::template Multiply<0, 4, 6>();
    StreamTile<7>(w + kTileSide, kWeightBytes);
    PrefetchPart<kFetched, 1>(next);
    Arithmetic::template Multiply<1, 4, 7>();
    StreamTile<6>(w + 2 * kTileSide, kWeightBytes);
    PrefetchPart<kFetched, 2>(next);
    Arithmetic::template Multiply<2, 4, 6>();
    StreamTile<7>(w + 3 * kTileSide, kWeightBytes);
    PrefetchPart<kFetched, 3>(next);
    Arithmetic::template Multiply<3, 4, 7>();
  };
  for (int64_t step = 0; step < block.steps; ++step) {
    multiply.template operator()<kLines>(block.weights + step * kPanelStep, step);
  }
  if (block.tail != nullptr) multiply.template operator()<0>(block.tail, block.steps);
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
    const TiledRowsOf rows = RowsAt(task, row, first_step);
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
      const int64_t left = row_end - row < count ? row_end - row : count;
      StoreTile<Type>(task, row, left, panel, tile_sums);
    }
    row += count;
  }
}

// The steps of K that rows walk before the next rows do: one tile of rows reads a panel once; few
// tiles walk a block that stays in L1, some one that stays in L2. Of many tiles two stay in L1
// while they meet all columns of a group of panels, which come from L2; with more steps they would
// not (16 took 0.97 to 1.14 of the time of 12), with fewer more sums would come and go.
constexpr int64_t kFewTiles = 4, kStepsOfFew = 8;
constexpr int64_t kSomeTiles = 12, kStepsOfSome = 32;
// So many passes over a block fetch all of the next one with two lines a step instead of four.
constexpr int64_t kManyTiles = 24;
constexpr int64_t kStepsOfMany = 12;

inline int64_t StepsOfBlock(int64_t tiles, int64_t steps) {
  if (steps == 0) return 1;
  const int64_t most = tiles == 1            ? steps
                       : tiles <= kFewTiles  ? kStepsOfFew
                       : tiles <= kSomeTiles ? kStepsOfSome
                                             : kStepsOfMany;
  const int64_t blocks = (steps + most - 1) / most;
  return (steps + blocks - 1) / blocks;
}

// Blocks of K in the panels of a product.
struct TiledPanels {
  TiledPanels(const LinearTask& linear, int64_t most_steps)
      : task(linear), steps(linear.k_units / kTileSide), max_steps(most_steps) {}

  const uint32_t* Weights(int64_t panel, int64_t step) const {
    return task.weight +
           ((panel - task.first_panel) * task.k_units + step * kTileSide) * kPanelColumns;
  }
  int64_t StepsFrom(int64_t step) const {
    return steps - step < max_steps ? steps - step : max_steps;
  }
  bool IsLast(int64_t step) const { return step + StepsFrom(step) == steps; }
  // The block from that step on. tail: room for kPanelStep units.
  TiledBlock Block(int64_t panel, int64_t step, uint32_t* tail) const {
    TiledBlock block = {Weights(panel, step), StepsFrom(step), nullptr, step == 0};
    const int64_t units = task.k_units % kTileSide * kPanelColumns;
    if (!IsLast(step) || units == 0) return block;
    __builtin_memcpy(tail, Weights(panel, steps), units * sizeof(uint32_t));
    __builtin_memset(tail + units, 0, (kPanelStep - units) * sizeof(uint32_t));
    block.tail = tail;
    return block;
  }

  const LinearTask& task;
  const int64_t steps;  // whole ones
  const int64_t max_steps;
};

// Panels [group, group_end): each block meets all rows before the next one does.
template <class Arithmetic>
void FewTiles(const TiledPanels& panels, int64_t row_begin, int64_t row_end, int64_t tiles,
              int64_t group, int64_t group_end, float* sums) {
  const LinearTask& task = panels.task;
  const int64_t sums_of_panel = tiles * task.tile_rows * kPanelColumns;
  alignas(64) uint32_t tail[kPanelStep];
  // A depth of less than one step has one block, which is its tail.
  for (int64_t step = 0; step == 0 || step < panels.steps; step += panels.max_steps) {
    const bool is_last = panels.IsLast(step);
    for (int64_t panel = group; panel < group_end; ++panel) {
      const TiledBlock block = panels.Block(panel, step, tail);
      const auto multiply = [&]<int kLines>(const uint32_t* ahead) {
        TiledPanelBlock<Arithmetic, kLines>(task, row_begin, row_end, panel, step, block,
                                            sums + (panel - group) * sums_of_panel, is_last, ahead,
                                            block.steps * kPanelStep);
      };
      const uint32_t* const next = panel + 1 < group_end ? panels.Weights(panel + 1, step)
                                   : is_last             ? panels.Weights(group_end, 0)
                                             : panels.Weights(group, step + block.steps);
      if (tiles == 1) {
        // Its passes are the panel: what it reads 16 KiB later.
        multiply.template operator()<kLinesOfStep>(block.weights + 4 * kPanelStep);
      } else if (tiles <= 3) {
        multiply.template operator()<32>(next);
      } else {
        multiply.template operator()<16>(next);
      }
    }
  }
}

// Panels [group, group_end). The passes of all rows over a block fetch the next one, which may be
// the next group's, with kLines; those of two tiles the next two.
template <class Arithmetic, int kLines>
void ManyTiles(const TiledPanels& panels, int64_t row_begin, int64_t row_end, int64_t group,
               int64_t group_end, int64_t panel_end, float* sums) {
  constexpr int kRowLines = 16 / kPanelsAtOnce;
  constexpr int64_t kStrips = kPanelColumns / (2 * kTileSide);
  const LinearTask& task = panels.task;
  const int64_t height = task.tile_rows, num_rows = row_end - row_begin;
  const int64_t sums_of_panel = (num_rows + height - 1) / height * height * kPanelColumns;
  alignas(64) uint32_t tails[kPanelsAtOnce][kPanelStep];
  TiledBlock blocks[kPanelsAtOnce];
  for (int64_t step = 0; step == 0 || step < panels.steps; step += panels.max_steps) {
    for (int64_t p = group; p < group_end; ++p) {
      blocks[p - group] = panels.Block(p, step, tails[p - group]);
    }
    const int64_t count = panels.StepsFrom(step), next_step = step + count;
    const int64_t pass_units = count * kLines * kVecLanes;
    const bool is_last = panels.IsLast(step);
    int64_t fetched = 0;  // units of each panel's next block
    for (int64_t row = row_begin; row < row_end; row += 2 * height) {
      const int64_t left = row_end - row < 2 * height ? row_end - row : 2 * height;
      const bool has_more = row + left < row_end;
      const TiledRowsOf rows = RowsAt(task, row, step);
      const TiledRowsOf next_rows = has_more  ? RowsAt(task, row + left, step)
                                    : is_last ? RowsAt(task, row_begin, 0)
                                              : RowsAt(task, row_begin, next_step);
      for (int64_t p = group; p < group_end; ++p) {
        const TiledBlock& block = blocks[p - group];
        float* const at = sums + (p - group) * sums_of_panel + (row - row_begin) * kPanelColumns;
        const int64_t next_panel = is_last ? p + group_end - group : p;
        const uint32_t* const next = panels.Weights(next_panel, is_last ? 0 : next_step);
        if (left <= height) OneByFour<Arithmetic, 0>(block, rows, at, nullptr);
        for (int64_t i = 0; left > height && i < kStrips; ++i) {
          const int strip = static_cast<int>(i) * 2 * kTileSide;
          const int64_t done = fetched + i * pass_units;
          const uint32_t* const rows_ahead = next_rows.UnitsFrom(
              ((p - group) * kStrips + i) * count * kRowLines * kVecLanes, count);
          if (next_panel < panel_end && done < count * kPanelStep) {
            TwoByTwo<Arithmetic, kLines, kRowLines>(block, rows, strip, at + strip, next + done,
                                                    rows_ahead);
          } else {
            TwoByTwo<Arithmetic, 0, kRowLines>(block, rows, strip, at + strip, nullptr, rows_ahead);
          }
        }
        if (is_last) StoreTile<typename Arithmetic::Type>(task, row, left, p, at);
      }
      fetched += kStrips * pass_units;
    }
  }
}

template <class Arithmetic>
void TiledLinear(const LinearTask& task, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                 int64_t panel_end, float* partial) {
  const Tiles shape{TileShape(task.tile_rows)};
  const int64_t tiles = (row_end - row_begin + task.tile_rows - 1) / task.tile_rows;
  const TiledPanels panels(task, StepsOfBlock(tiles, task.k_units / kTileSide));
  const int64_t at_once = tiles <= kFewTiles ? 1 : kPanelsAtOnce;
  for (int64_t group = panel_begin; group < panel_end; group += at_once) {
    const int64_t group_end = group + at_once < panel_end ? group + at_once : panel_end;
    if (tiles <= kSomeTiles) {
      FewTiles<Arithmetic>(panels, row_begin, row_end, tiles, group, group_end, partial);
      continue;
    }
    const auto multiply = [&]<int kLines>() {
      ManyTiles<Arithmetic, kLines>(panels, row_begin, row_end, group, group_end, panel_end,
                                    partial);
    };
    if (tiles > kManyTiles) {
      multiply.template operator()<2>();
    } else {
      multiply.template operator()<4>();
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

// As pack_rows of TypedKernels. Steps outermost: tiles are written from one end to the other, and
// 16 rows are no more than the prefetchers follow.
template <class Type>
void PackTiledRows(const void* x, int64_t stride, int64_t rows, int64_t k, int64_t height,
                   uint32_t* tile) {
  using Element = typename Type::Element;
  constexpr int64_t kNumbers = kTileSide * Type::kStep;
  const auto* const from = static_cast<const Element*>(x);
  int64_t i = 0;
  for (; i + kNumbers <= k; i += kNumbers, tile += height * kTileSide) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto* const units = reinterpret_cast<const uint32_t*>(from + r * stride + i);
      StoreUnits(tile + r * kTileSide, LoadUnits(units));
    }
  }
  if (i == k) return;
  for (int64_t r = 0; r < rows; ++r, tile += kTileSide) {
    __builtin_memset(tile, 0, kTileSide * sizeof(uint32_t));
    __builtin_memcpy(tile, from + r * stride + i, (k - i) * sizeof(Element));
  }
}

}  // namespace
}  // namespace tandem
