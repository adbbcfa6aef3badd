#pragma once

// The products of block_kernels.h for many rows on tiles (amx_tiles.h): a tile product of a group's
// bytes gives exact integers, to which the vectors apply scales and offsets in the order of all
// instruction sets.

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/block_kernels.h"

namespace tandem {
namespace {

// Fewer rows are as fast on vectors, where their sums stay in registers.
constexpr int64_t kFewestTiledRows = 8;

struct TiledBlocks {
  using Sums = int32_t[kTileSide * kPanelColumns];

  template <int kParts, Offsets kOffsets>
  static void Rows(const BlockTask& task, const LinearTask& output, const BlockRun& run,
                   int64_t row_begin, int64_t row_end, int64_t column, float* totals) {
    const int64_t rows = row_end - row_begin;
    const int64_t num_tiles = (rows + kTileSide - 1) / kTileSide;
    const int64_t height = (rows + num_tiles - 1) / num_tiles;
    const Tiles shape(ShapeOf<kParts>(height));
    if (run.is_first) __builtin_memset(totals, 0, rows * kPanelColumns * sizeof(float));
    for (int64_t row = row_begin; row < row_end; row += height) {
      // The last tile begins earlier, where it would end beyond the rows, and its first are left.
      const int64_t first = row + height <= row_end ? row : row_end - height;
      const int64_t left = row - first;
      float* const row_totals = totals + (row - row_begin) * kPanelColumns;
      // The tiles are one group ahead of the vectors.
      alignas(64) Sums sums[2];
      const int64_t count = run.count * kParts;
      Multiply<kParts>(task, run, first, 0, sums[0]);
      for (int64_t i = 0; i < count; ++i) {
        if (i + 1 < count) Multiply<kParts>(task, run, first, i + 1, sums[(i + 1) % 2]);
        AddScaled<kParts, kOffsets>(task, run, row, first + height, i,
                                    sums[i % 2] + left * kPanelColumns, row_totals);
      }
      if (!run.is_last) continue;
      for (int64_t r = row; r < first + height; ++r) {
        for (int v = 0; v < kPanelColumns; v += kVecLanes) {
          StoreOutput<F32Type>(output, r, column + v,
                               Load(row_totals + (r - row) * kPanelColumns + v));
        }
      }
    }
  }

 private:
  template <int kParts>
  static TileShape ShapeOf(int64_t height) {
    constexpr int kUnits = kUnitsOfGroup / kParts;
    TileShape shape(height);
    shape.row_bytes[4] = kUnits * sizeof(uint32_t);
    shape.rows[6] = shape.rows[7] = kUnits;
    return shape;
  }

  // sums[r][column] of part i of the run.
  template <int kParts>
  static void Multiply(const BlockTask& task, const BlockRun& run, int64_t row, int64_t i,
                       int32_t* sums) {
    constexpr int kUnits = kUnitsOfGroup / kParts;
    constexpr int64_t kBytes = kPanelColumns * sizeof(uint32_t);
    const int64_t a_stride = task.num_groups * kUnitsOfGroup;
    const uint32_t* const a = task.a + row * a_stride + run.first * kUnitsOfGroup + i * kUnits;
    const uint32_t* const w =
        run.codes + i / kParts * run.stride + i % kParts * kUnits * kPanelColumns;
    BeforeTileLoads();
    LoadTile<4>(a, a_stride * static_cast<int64_t>(sizeof(uint32_t)));
    ZeroTile<0>();
    LoadTile<6>(w, kBytes);
    Int8Tiles::Multiply<0, 4, 6>();
    ZeroTile<1>();
    LoadTile<7>(w + kTileSide, kBytes);
    Int8Tiles::Multiply<1, 4, 7>();
    ZeroTile<2>();
    LoadTile<6>(w + 2 * kTileSide, kBytes);
    Int8Tiles::Multiply<2, 4, 6>();
    ZeroTile<3>();
    LoadTile<7>(w + 3 * kTileSide, kBytes);
    Int8Tiles::Multiply<3, 4, 7>();
    StoreTileTo<0>(sums, kBytes);
    StoreTileTo<1>(sums + kTileSide, kBytes);
    StoreTileTo<2>(sums + 2 * kTileSide, kBytes);
    StoreTileTo<3>(sums + 3 * kTileSide, kBytes);
  }

  // totals += the scaled sums of part i of the run, for rows [row, row_end).
  template <int kParts, Offsets kOffsets>
  static void AddScaled(const BlockTask& task, const BlockRun& run, int64_t row, int64_t row_end,
                        int64_t i, const int32_t* sums, float* totals) {
    const int64_t group = run.first + i / kParts;
    Vec scales[kVecsOfPanel], offsets[kVecsOfPanel];
    TANDEM_UNROLL
    for (int v = 0; v < kVecsOfPanel; ++v) {
      const int64_t at = i * kPanelColumns + v * kVecLanes;
      scales[v] = Load(run.scales + at);
      if constexpr (kOffsets != Offsets::kNone) offsets[v] = Load(run.offsets + at);
    }
    for (; row < row_end; ++row, sums += kPanelColumns, totals += kPanelColumns) {
      const int32_t* const parts = task.sums + 2 * (row * task.num_groups + group);
      const int32_t x_sum = kParts == 1 ? parts[0] + parts[1] : parts[i % kParts];
      const float x_scale = task.scales[row * task.num_groups + group];
      TANDEM_UNROLL
      for (int v = 0; v < kVecsOfPanel; ++v) {
        const Vec sum =
            FloatsOf(LoadUnits(reinterpret_cast<const uint32_t*>(sums) + v * kVecLanes));
        Vec product = FromInts(sum, -run.zero * x_sum);
        if constexpr (kOffsets == Offsets::kZeros) {
          product = Sub(product, Mul(offsets[v], Set1(static_cast<float>(x_sum))));
        }
        Vec total = Load(totals + v * kVecLanes);
        total = ExactFma(product, Mul(scales[v], Set1(x_scale)), total);
        if constexpr (kOffsets == Offsets::kAdded) {
          const float x_total = x_scale * static_cast<float>(x_sum);
          total = ExactFma(offsets[v], Set1(x_total), total);
        }
        Store(totals + v * kVecLanes, total);
      }
    }
  }
};

inline void TiledLinearBlocks(const BlockTask& task, int64_t row_begin, int64_t row_end,
                              int64_t panel_begin, int64_t panel_end, float* room) {
  if (row_end - row_begin < kFewestTiledRows) {
    const KernelTable& vectors = Avx512Bf16Kernels();
    return vectors.linear_blocks(task, row_begin, row_end, panel_begin, panel_end, room);
  }
  LinearBlocks<TiledBlocks>(task, row_begin, row_end, panel_begin, panel_end, room);
}

}  // namespace
}  // namespace tandem
