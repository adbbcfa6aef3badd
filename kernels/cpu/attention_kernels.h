#pragma once

// Paged attention of a few queries over all their keys, on the vec_*.h of the including isa_*.cc.
//
// Rows are (query, query head) pairs that share one KV head. Keys are walked in steps of 128 tokens
// aligned by absolute position, with a running maximum per row (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018); inside a step both products run tile by tile on the
// loop of linear_kernels.h. A row takes part in exactly the tiles that hold a key it sees, always
// whole tiles in ascending order, so its bits depend on its own position and keys only.

#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/math_kernels.h"
#include "kernels/cpu/norm_kernels.h"

namespace tandem {
namespace {

constexpr int kStepVecs = kStepTokens / kVecLanes;
constexpr int kStepTiles = kStepTokens / kTileTokens;
constexpr int kKeyVecs = kStripVecs < 2 ? kStripVecs : 2;  // of a tile's 32 keys

template <class Type>
struct AttentionScratch {
  typename Type::Element* q;        // [rows][padded_dim]
  typename Type::Element* weights;  // [rows][kStepTokens], exp(score - maximum) of this step
  float* scores;                    // [rows][kStepTokens]
  float* sums;                      // [rows][padded_dim], sum of weight * V
  float* totals;                    // [rows][16], sum of weights by lane
  float* maxima;                    // [rows][16], lane 0 only

  AttentionScratch(float* memory, int64_t rows, int64_t padded_dim) {
    auto take = [&memory, rows](int64_t floats) {
      float* taken = memory;
      memory += rows * floats;
      return taken;
    };
    q = reinterpret_cast<typename Type::Element*>(take(padded_dim));
    weights = reinterpret_cast<typename Type::Element*>(take(kStepTokens));
    scores = take(kStepTokens);
    sums = take(padded_dim);
    totals = take(kVecLanes);
    maxima = take(kVecLanes);
  }
};

// scores[r, 0..31] = q[r, :] . K tile.
template <class Type, int kRows>
void TileScores(const uint32_t* q, int64_t q_units, const uint32_t* k, float* scores) {
  for (int strip = 0; strip < kTileTokens; strip += kKeyVecs * kVecLanes) {
    Vec sum[kRows][kKeyVecs];
    TANDEM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TANDEM_UNROLL
      for (int v = 0; v < kKeyVecs; ++v) sum[r][v] = Zero();
    }
    AccumulateTile<Type, kRows, kKeyVecs, false, false>(q, q_units, k + strip, kTileTokens, q_units,
                                                        sum);
    TANDEM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TANDEM_UNROLL
      for (int v = 0; v < kKeyVecs; ++v) {
        Store(scores + r * kStepTokens + strip + v * kVecLanes, sum[r][v]);
      }
    }
  }
}

// sums[r, columns] += weights[r, 0..31] . V tile, for kVecs vectors of columns. kMasked: tokens
// from `valid` on count as zero whatever the cache holds there.
template <class Type, int kRows, int kVecs, bool kMasked>
void TileValues(const uint32_t* weights, const uint32_t* v_tile, int64_t padded_dim, int valid,
                float* sums) {
  constexpr int64_t kWeightStride = kStepTokens / Type::kStep;
  Vec sum[kRows][kVecs];
  TANDEM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TANDEM_UNROLL
    for (int v = 0; v < kVecs; ++v) sum[r][v] = Load(sums + r * padded_dim + v * kVecLanes);
  }
  AccumulateTile<Type, kRows, kVecs, false, false, kMasked>(
      weights, kWeightStride, v_tile, padded_dim, kTileTokens / Type::kStep, sum, valid);
  TANDEM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TANDEM_UNROLL
    for (int v = 0; v < kVecs; ++v) Store(sums + r * padded_dim + v * kVecLanes, sum[r][v]);
  }
}

template <class Type, int kRows>
void TileValuesAllColumns(const uint32_t* weights, const uint32_t* v_tile, int64_t padded_dim,
                          int valid, float* sums) {
  auto columns = [&]<int kVecs>(int64_t column) {
    if (valid >= kTileTokens) {
      TileValues<Type, kRows, kVecs, false>(weights, v_tile + column, padded_dim, valid,
                                            sums + column);
    } else {
      TileValues<Type, kRows, kVecs, true>(weights, v_tile + column, padded_dim, valid,
                                           sums + column);
    }
  };
  int64_t column = 0;
  for (; column + kStripVecs * kVecLanes <= padded_dim; column += kStripVecs * kVecLanes) {
    columns.template operator()<kStripVecs>(column);
  }
  for (; column < padded_dim; column += kVecLanes) columns.template operator()<1>(column);
}

// Turns one row's scores of a step into weights and rescales what the row has so far. Keys
// [begin, end) of the step are visible.
template <class Type>
void SoftmaxStep(const AttentionTask& task, const AttentionScratch<Type>& scratch, int64_t row,
                 int begin, int end) {
  auto clamp = [](int lane) { return lane < 0 ? 0 : lane > kVecLanes ? kVecLanes : lane; };
  const Vec hidden = Set1(-__builtin_inff());
  Vec score[kStepVecs];
  Vec max = hidden;
  TANDEM_UNROLL
  for (int v = 0; v < kStepVecs; ++v) {
    score[v] = Mul(Load(scratch.scores + row * kStepTokens + v * kVecLanes), Set1(task.scale));
    if (task.soft_cap > 0) {
      score[v] = Mul(Set1(task.soft_cap), Tanh(Mul(score[v], Set1(1 / task.soft_cap))));
    }
    score[v] =
        KeepLanes(score[v], clamp(begin - v * kVecLanes), clamp(end - v * kVecLanes), hidden);
    max = Max(max, score[v]);
  }
  float* maximum = scratch.maxima + row * kVecLanes;
  const float step_max = ReduceMax(max);
  Vec total = Load(scratch.totals + row * kVecLanes);
  if (step_max > *maximum) {
    const Vec shrink = Exp(Set1(*maximum - step_max));
    total = Mul(total, shrink);
    float* sums = scratch.sums + row * task.padded_dim;
    for (int i = 0; i < task.padded_dim; i += kVecLanes)
      Store(sums + i, Mul(Load(sums + i), shrink));
    *maximum = step_max;
  }
  TANDEM_UNROLL
  for (int v = 0; v < kStepVecs; ++v) {
    const Vec weight = Exp(Sub(score[v], Set1(*maximum)));
    total = Add(total, weight);
    Store(scratch.weights + row * kStepTokens + v * kVecLanes, weight);
  }
  Store(scratch.totals + row * kVecLanes, total);
}

template <class Type>
void Attention(const AttentionTask& task, const AttentionItem& item, int kv_head, float* memory) {
  using Element = typename Type::Element;
  const int group = task.num_heads / task.num_kv_heads;
  const int rows = item.num_queries * group;
  const int dim = task.padded_dim;
  const int64_t q_units = dim / Type::kStep;
  const int64_t tile_units = int64_t{kTileTokens} * q_units;
  const AttentionScratch<Type> scratch(memory, rows, dim);
  const int last_position = item.first_position + item.num_queries - 1;

  auto head_of_row = [&](int row) { return kv_head * group + row % group; };
  for (int row = 0; row < rows; ++row) {
    const Element* q = static_cast<const Element*>(task.q) +
                       (item.first_token + row / group) * task.q_stride +
                       head_of_row(row) * task.head_dim;
    Element* to = scratch.q + int64_t{row} * dim;
    for (int i = 0; i < dim; i += kVecLanes) {
      const int left = task.head_dim - i;
      Store(to + i, LoadN(q + i, left < kVecLanes ? left : kVecLanes));
      Store(scratch.sums + int64_t{row} * dim + i, Zero());
    }
    Store(scratch.totals + row * kVecLanes, Zero());
    scratch.maxima[row * kVecLanes] = -__builtin_inff();
  }

  // The keys a query at `position` sees begin here.
  auto first_key = [&](int position) {
    return task.window > 0 && position >= task.window ? position - task.window + 1 : 0;
  };
  // Calls f(row_begin, row_end, tile, units offset of the tile) for the tiles of a step, with the
  // rows that see any of its keys.
  auto for_each_tile = [&](int step, auto f) {
    for (int tile = 0; tile < kStepTiles; ++tile) {
      const int key = step + tile * kTileTokens;
      if (key > last_position) return;
      int row_begin = key > item.first_position ? (key - item.first_position) * group : 0;
      int row_end = rows;
      if (task.window > 0) {
        const int queries = key + kTileTokens - 1 + task.window - item.first_position;
        row_end = queries < 0 ? 0 : queries < item.num_queries ? queries * group : rows;
      }
      if (row_begin >= row_end) continue;
      const int block_tokens = task.tiles_per_block * kTileTokens;
      const int64_t tile_idx = int64_t{item.blocks[key / block_tokens]} * task.tiles_per_block +
                               key % block_tokens / kTileTokens;
      f(row_begin, row_end, tile, (tile_idx * task.num_kv_heads + kv_head) * tile_units);
    }
  };

  const int first_step = first_key(item.first_position) / kStepTokens * kStepTokens;
  for (int step = first_step; step <= last_position; step += kStepTokens) {
    for_each_tile(step, [&](int row_begin, int row_end, int tile, int64_t offset) {
      for (int row = row_begin; row < row_end; row += kTileRows) {
        WithRows(row_end - row < kTileRows ? row_end - row : kTileRows, [&]<int kRows>() {
          TileScores<Type, kRows>(reinterpret_cast<const uint32_t*>(scratch.q + int64_t{row} * dim),
                                  q_units, task.k + offset,
                                  scratch.scores + row * kStepTokens + tile * kTileTokens);
        });
      }
    });
    for (int row = 0; row < rows; ++row) {
      const int position = item.first_position + row / group;
      const int begin = first_key(position) - step;
      if (position < step || begin >= kStepTokens) continue;
      SoftmaxStep<Type>(task, scratch, row, begin, position + 1 - step);
    }
    for_each_tile(step, [&](int row_begin, int row_end, int tile, int64_t offset) {
      const int valid = item.context_len - (step + tile * kTileTokens);
      for (int row = row_begin; row < row_end; row += kTileRows) {
        WithRows(row_end - row < kTileRows ? row_end - row : kTileRows, [&]<int kRows>() {
          TileValuesAllColumns<Type, kRows>(
              reinterpret_cast<const uint32_t*>(scratch.weights + row * kStepTokens +
                                                tile * kTileTokens),
              task.v + offset, dim, valid, scratch.sums + int64_t{row} * dim);
        });
      }
    });
  }

  for (int row = 0; row < rows; ++row) {
    const Vec inverse = Set1(1.0f / ReduceAdd(Load(scratch.totals + row * kVecLanes)));
    Element* out = static_cast<Element*>(task.out) +
                   (item.first_token + row / group) * task.out_stride +
                   head_of_row(row) * task.head_dim;
    ForEachVec(task.head_dim, [&](int64_t i, int64_t count) {
      // Adding zero makes -0 a 0: hidden keys may add a zero of either sign.
      const Vec value = Mul(LoadN(scratch.sums + int64_t{row} * dim + i, count), inverse);
      StoreN(out + i, Add(value, Zero()), count);
    });
  }
}

}  // namespace
}  // namespace tandem
