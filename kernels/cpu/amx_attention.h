#pragma once

// The products of attention_kernels.h on tiles (amx_tiles.h), for every number of rows. A tile of
// rows takes all cache tiles that one of its rows sees. What the others see of them has weight 0,
// and adding products with 0 changes no bit: a row that sees any key of a step takes part in one
// product of it, after which its sums have no denormals.

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/attention_kernels.h"

namespace tandem {
namespace {

class TiledProducts {
 public:
  static int RoomRows(int rows) { return NumTiles(rows) * HeightOf(rows); }
  static constexpr bool kReadsAllWeights = true;

  TiledProducts(int rows, int64_t dim)
      : height_(HeightOf(rows)), shape_(ShapeOf(height_, dim % kStepNumbers)) {}

  void Scores(const AttentionScratch<Bf16Type>& scratch, const StepTile* tiles, int num_tiles,
              int /*rows*/, int64_t dim) const {
    BeforeTileLoads();
    for (int t = 0; t < num_tiles; ++t) {
      ForEachTileOfRows(tiles[t].row_begin, tiles[t].row_end, [&](int row, int count) {
        const uint16_t* const q = scratch.q + row * dim;
        float* const scores = scratch.scores + row * kStepTokens + tiles[t].number * kTileTokens;
        if (count == 2) {
          ScoresOf<2>(q, tiles[t].k, dim, scores);
        } else {
          ScoresOf<1>(q, tiles[t].k, dim, scores);
        }
      });
    }
  }

  void Values(const AttentionScratch<Bf16Type>& scratch, const StepTile* tiles, int num_tiles,
              int rows, int64_t dim) const {
    const uint32_t* values[kStepTiles];
    for (int t = 0; t < num_tiles; ++t) {
      values[t] = tiles[t].v;
      if (tiles[t].valid == kTileTokens) continue;
      auto* const to = reinterpret_cast<uint32_t*>(scratch.v) +
                       tiles[t].number * kTileTokens / Bf16Type::kStep * dim;
      KeepKeys(values[t], tiles[t].valid, dim, to);
      values[t] = to;
    }
    BeforeTileLoads();
    ForEachTileOfRows(0, rows, [&](int row, int count) {
      const int end = row + count * height_;
      for (int64_t column = 0; column < dim; column += kTileSide) {
        float* const sums = scratch.sums + row * dim + column;
        LoadTile<0>(sums, dim * 4);
        if (count == 2) LoadTile<1>(sums + height_ * dim, dim * 4);
        for (int t = 0; t < num_tiles; ++t) {
          if (tiles[t].row_begin >= end || tiles[t].row_end <= row) continue;
          const uint16_t* const weights =
              scratch.weights + row * kStepTokens + tiles[t].number * kTileTokens;
          LoadTile<6>(values[t] + column, dim * 4);
          LoadTile<4>(weights, kWeightBytes);
          Bf16Tiles::Multiply<0, 4, 6>();
          if (count == 2) {
            LoadTile<4>(weights + height_ * kStepTokens, kWeightBytes);
            Bf16Tiles::Multiply<1, 4, 6>();
          }
        }
        StoreTileTo<0>(sums, dim * 4);
        if (count == 2) StoreTileTo<1>(sums + height_ * dim, dim * 4);
      }
    });
  }

 private:
  static constexpr int kStepNumbers = 2 * kTileSide;  // of a head that one product takes
  static constexpr int64_t kScoreBytes = kStepTokens * sizeof(float);
  static constexpr int64_t kWeightBytes = kStepTokens * sizeof(uint16_t);

  static int NumTiles(int rows) { return (rows + kTileSide - 1) / kTileSide; }
  static int HeightOf(int rows) { return (rows + NumTiles(rows) - 1) / NumTiles(rows); }

  // Tiles 5 and 7 take the last numbers of heads that no whole steps fill.
  static TileShape ShapeOf(int height, int64_t last_numbers) {
    TileShape shape(height);
    if (last_numbers > 0) {
      shape.row_bytes[5] = static_cast<uint16_t>(last_numbers * sizeof(uint16_t));
      shape.rows[7] = static_cast<uint8_t>(last_numbers / Bf16Type::kStep);
    }
    return shape;
  }

  // Calls f(first row, 1 or 2 tiles) for the tiles that have one of the rows [begin, end).
  template <class F>
  void ForEachTileOfRows(int begin, int end, F f) const {
    int row = begin / height_ * height_;
    for (; row + height_ < end; row += 2 * height_) f(row, 2);
    if (row < end) f(row, 1);
  }

  // scores[r, keys of the tile] = q[r, :] . K
  template <int kCount>
  void ScoresOf(const uint16_t* q, const uint32_t* k, int64_t dim, float* scores) const {
    constexpr int64_t kKeyBytes = kTileTokens * sizeof(uint32_t);
    const uint16_t* const below = q + height_ * dim;
    const int64_t whole = dim / kStepNumbers * kStepNumbers;
    ZeroTile<0>();
    ZeroTile<1>();
    if constexpr (kCount == 2) {
      ZeroTile<2>();
      ZeroTile<3>();
    }
    const auto multiply = [&]<int kRows, int kKeys>(int64_t i) {
      const uint32_t* const keys = k + i / Bf16Type::kStep * kTileTokens;
      LoadTile<kKeys>(keys, kKeyBytes);
      LoadTile<kRows>(q + i, dim * 2);
      Bf16Tiles::Multiply<0, kRows, kKeys>();
      if constexpr (kCount == 2) {
        LoadTile<kRows>(below + i, dim * 2);
        Bf16Tiles::Multiply<2, kRows, kKeys>();
      }
      LoadTile<kKeys>(keys + kTileSide, kKeyBytes);
      if constexpr (kCount == 2) {
        Bf16Tiles::Multiply<3, kRows, kKeys>();
        LoadTile<kRows>(q + i, dim * 2);
      }
      Bf16Tiles::Multiply<1, kRows, kKeys>();
    };
    for (int64_t i = 0; i < whole; i += kStepNumbers) multiply.template operator()<4, 6>(i);
    if (whole < dim) multiply.template operator()<5, 7>(whole);
    StoreTileTo<0>(scores, kScoreBytes);
    StoreTileTo<1>(scores + kTileSide, kScoreBytes);
    if constexpr (kCount == 2) {
      float* const scores_below = scores + height_ * kStepTokens;
      StoreTileTo<2>(scores_below, kScoreBytes);
      StoreTileTo<3>(scores_below + kTileSide, kScoreBytes);
    }
  }

  // A tile of V whose keys from `valid` on are 0 whatever the cache holds; perhaps in place.
  static void KeepKeys(const uint32_t* v, int valid, int64_t dim, uint32_t* to) {
    for (int unit = 0; unit < kTileTokens / Bf16Type::kStep; ++unit, v += dim, to += dim) {
      const int left = valid - unit * Bf16Type::kStep;
      const uint32_t mask = left >= Bf16Type::kStep ? 0xffffffff : left <= 0 ? 0 : 0xffff;
      for (int64_t i = 0; i < dim; i += kVecLanes) {
        StoreUnits(to + i, AndUnits(LoadUnits(v + i), mask));
      }
    }
  }

  int height_;
  Tiles shape_;
};

}  // namespace
}  // namespace tandem
