#pragma once

// Paged attention of a few queries over all their keys, on the vec_*.h of the including isa_*.cc.
//
// Rows are (query, query head) pairs that share one KV head. Keys are walked in steps of 128 tokens
// aligned by absolute position, with a running maximum per row (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018); inside a step both products run tile by tile on the
// loop of linear_kernels.h. A row takes part in exactly the tiles that hold a key it sees, always
// whole tiles in ascending order, so its bits depend on its own position and keys only.

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/int4_kv_kernels.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/math_kernels.h"
#include "kernels/cpu/norm_kernels.h"

namespace tandem {
namespace {

constexpr int kStepVecs = kStepTokens / kVecLanes;
constexpr int kKeyVecs = kStripVecs < 2 ? kStripVecs : 2;  // of a tile's 32 keys
constexpr int kScoreTiles = kStripVecs / kKeyVecs;  // tiles whose scores are computed at once

// scores[r, keys of the tiles] = q[r, :] . K, for kTiles neighbouring tiles.
template <class Type, int kRows, int kTiles>
void TileScores(const uint32_t* q, int64_t q_units, const StepTile* tiles, float* scores) {
  for (int strip = 0; strip < kTileTokens; strip += kKeyVecs * kVecLanes) {
    Vec sum[kRows][kTiles * kKeyVecs];
    TANDEM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TANDEM_UNROLL
      for (int v = 0; v < kTiles * kKeyVecs; ++v) sum[r][v] = Zero();
    }
    const uint32_t* k[kTiles];
    for (int t = 0; t < kTiles; ++t) k[t] = tiles[t].k + strip;
    AccumulateTile<Type, false>(q, q_units, k, kTileTokens, q_units, sum);
    TANDEM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TANDEM_UNROLL
      for (int v = 0; v < kTiles * kKeyVecs; ++v) {
        Store(scores + r * kStepTokens + (tiles[0].number + v / kKeyVecs) * kTileTokens + strip +
                  v % kKeyVecs * kVecLanes,
              sum[r][v]);
      }
    }
  }
}

// sums[r, columns] += weights[r, keys] . V over some neighbouring tiles, for kVecs vectors of
// columns. kMasked: one tile, whose keys from `valid` on count as zero whatever the cache holds.
template <class Type, int kRows, int kVecs, bool kMasked>
void TileValues(const typename Type::Element* weights, const StepTile* tiles, int num_tiles,
                int64_t column, int64_t padded_dim, float* sums) {
  constexpr int64_t kWeightStride = kStepTokens / Type::kStep;
  Vec sum[kRows][kVecs];
  TANDEM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TANDEM_UNROLL
    for (int v = 0; v < kVecs; ++v)
      sum[r][v] = Load(sums + r * padded_dim + column + v * kVecLanes);
  }
  for (int t = 0; t < num_tiles; ++t) {
    AccumulateTile<Type, false, 0, kMasked>(
        reinterpret_cast<const uint32_t*>(weights + tiles[t].number * kTileTokens), kWeightStride,
        {tiles[t].v + column}, padded_dim, kTileTokens / Type::kStep, sum, nullptr, tiles[t].valid);
  }
  TANDEM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TANDEM_UNROLL
    for (int v = 0; v < kVecs; ++v)
      Store(sums + r * padded_dim + column + v * kVecLanes, sum[r][v]);
  }
}

template <class Type, int kRows, bool kMasked>
void TileValuesAllColumns(const typename Type::Element* weights, const StepTile* tiles,
                          int num_tiles, int64_t padded_dim, float* sums) {
  int64_t column = 0;
  for (; column + kStripVecs * kVecLanes <= padded_dim; column += kStripVecs * kVecLanes) {
    TileValues<Type, kRows, kStripVecs, kMasked>(weights, tiles, num_tiles, column, padded_dim,
                                                 sums);
  }
  for (; column < padded_dim; column += kVecLanes) {
    TileValues<Type, kRows, 1, kMasked>(weights, tiles, num_tiles, column, padded_dim, sums);
  }
}

// Calls f(row_begin, row_end, first tile, number of tiles) for runs of at most max_run tiles that
// the same rows of [row_begin, row_end) see: a run shares one product. A masked tile is a run of
// its own.
template <class F>
inline void ForEachRun(const StepTile* tiles, int num_tiles, int row_begin, int row_end,
                       int max_run, F f) {
  auto begin_of = [&](int t) {
    return tiles[t].row_begin > row_begin ? tiles[t].row_begin : row_begin;
  };
  auto end_of = [&](int t) { return tiles[t].row_end < row_end ? tiles[t].row_end : row_end; };
  for (int t = 0, run = 0; t < num_tiles; t += run) {
    const int begin = begin_of(t);
    const int end = end_of(t);
    run = 1;
    if (begin >= end) continue;
    while (run < max_run && t + run < num_tiles && tiles[t].valid == kTileTokens &&
           tiles[t + run].valid == kTileTokens && begin_of(t + run) == begin &&
           end_of(t + run) == end) {
      ++run;
    }
    f(begin, end, tiles + t, run);
  }
}

// score[v] += slope * (the keys' positions - the query's), of a step whose first key is `distance`
// after the query.
inline void AddSlope(float slope, int distance, Vec (&score)[kStepVecs]) {
  float lanes[kVecLanes];
  for (int i = 0; i < kVecLanes; ++i) lanes[i] = static_cast<float>(distance + i);
  const Vec first = Load(lanes);
  TANDEM_UNROLL
  for (int v = 0; v < kStepVecs; ++v) {
    const Vec away = Add(first, Set1(static_cast<float>(v * kVecLanes)));
    score[v] = Fma(Set1(slope), away, score[v]);
  }
}

// Turns one row's scores of a step into weights and rescales the row's sums so far. Keys
// [begin, end) of the step are visible; kAll: all keys are. slope, distance: as for AddSlope.
template <class Type, bool kAll>
void SoftmaxStep(const AttentionTask& task, const AttentionScratch<Type>& scratch, int64_t row,
                 int begin, int end, float slope, int distance) {
  auto clamp = [](int lane) { return lane < 0 ? 0 : lane > kVecLanes ? kVecLanes : lane; };
  const Vec hidden = Set1(-__builtin_inff());
  Vec score[kStepVecs];
  TANDEM_UNROLL
  for (int v = 0; v < kStepVecs; ++v) {
    score[v] = Mul(Load(scratch.scores + row * kStepTokens + v * kVecLanes), Set1(task.scale));
  }
  const bool has_scales = task.kv_format == KvFormat::kInt8 || task.kv_format == KvFormat::kFloat8;
  if (has_scales) {
    TANDEM_UNROLL
    for (int v = 0; v < kStepVecs; ++v) {
      score[v] = Mul(score[v], Load(scratch.k_scales + v * kVecLanes));
    }
  }
  if (task.soft_cap > 0) {
    TANDEM_UNROLL
    for (int v = 0; v < kStepVecs; ++v) {
      score[v] = Mul(Set1(task.soft_cap), Tanh(Mul(score[v], Set1(1 / task.soft_cap))));
    }
  }
  if (task.slopes != nullptr) AddSlope(slope, distance, score);
  Vec max = hidden;
  TANDEM_UNROLL
  for (int v = 0; v < kStepVecs; ++v) {
    if constexpr (!kAll) {
      score[v] =
          KeepLanes(score[v], clamp(begin - v * kVecLanes), clamp(end - v * kVecLanes), hidden);
    }
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
    Vec weight = Exp(Sub(score[v], Set1(*maximum)));
    total = Add(total, weight);
    if (has_scales) {
      // A hidden slot may hold anything, a NaN scale included.
      const Vec scales = Load(scratch.v_scales + v * kVecLanes);
      weight = Mul(weight, kAll ? scales
                                : KeepLanes(scales, clamp(begin - v * kVecLanes),
                                            clamp(end - v * kVecLanes), Zero()));
    }
    Store(scratch.weights + row * kStepTokens + v * kVecLanes, weight);
  }
  Store(scratch.totals + row * kVecLanes, total);
}

// An output row from its sums. A function of its own, so that Attention, which has too few
// registers left at its end, keeps no vector on the stack.
template <class Element>
__attribute__((noinline)) void StoreScaled(const float* sums, float factor, int64_t size,
                                           Element* out) {
  ForEachVec(size, [&](int64_t i, int64_t count) {
    // Adding zero makes -0 a 0: hidden keys may add a zero of either sign.
    StoreN(out + i, Add(Mul(LoadN(sums + i, count), Set1(factor)), Zero()), count);
  });
}

// The two products of a step, for all rows that see its tiles.
template <class Type>
struct VectorProducts {
  // The rows that the scratch needs room for, and whether every row needs its weights of a step.
  static int RoomRows(int rows) { return rows; }
  static constexpr bool kReadsAllWeights = false;

  VectorProducts(int /*rows*/, int64_t /*dim*/) {}

  void Scores(const AttentionScratch<Type>& scratch, const StepTile* tiles, int num_tiles, int rows,
              int64_t dim) const {
    const int64_t q_units = dim / Type::kStep;
    for (int row0 = 0; row0 < rows; row0 += kTileRows) {
      const int row1 = row0 + kTileRows < rows ? row0 + kTileRows : rows;
      ForEachRun(tiles, num_tiles, row0, row1, kScoreTiles,
                 [&](int begin, int end, const StepTile* first, int run) {
                   const auto* q = reinterpret_cast<const uint32_t*>(scratch.q + begin * dim);
                   float* scores = scratch.scores + begin * kStepTokens;
                   WithRows(end - begin, [&]<int kRows>() {
                     if (run == kScoreTiles) {
                       TileScores<Type, kRows, kScoreTiles>(q, q_units, first, scores);
                     } else {
                       TileScores<Type, kRows, 1>(q, q_units, first, scores);
                     }
                   });
                 });
    }
  }

  void Values(const AttentionScratch<Type>& scratch, const StepTile* tiles, int num_tiles, int rows,
              int64_t dim) const {
    for (int row0 = 0; row0 < rows; row0 += kTileRows) {
      const int row1 = row0 + kTileRows < rows ? row0 + kTileRows : rows;
      ForEachRun(tiles, num_tiles, row0, row1, kStepTiles,
                 [&](int begin, int end, const StepTile* first, int run) {
                   const auto* weights = scratch.weights + begin * kStepTokens;
                   float* sums = scratch.sums + begin * dim;
                   WithRows(end - begin, [&]<int kRows>() {
                     if (first->valid == kTileTokens) {
                       TileValuesAllColumns<Type, kRows, false>(weights, first, run, dim, sums);
                     } else {
                       TileValuesAllColumns<Type, kRows, true>(weights, first, run, dim, sums);
                     }
                   });
                 });
    }
  }
};

// The output of a row that is done with its keys.
template <class Type>
__attribute__((noinline)) void EndRow(const AttentionTask& task,
                                      const AttentionScratch<Type>& scratch, int row, int head,
                                      typename Type::Element* out) {
  float* const sums = scratch.sums + int64_t{row} * task.padded_dim;
  if (task.kv_format == KvFormat::kInt4) RotateHead(sums, task.head_dim);
  float total = ReduceAdd(Load(scratch.totals + row * kVecLanes));
  if (task.sinks != nullptr) {
    float sink[kVecLanes];
    Store(sink, Exp(Set1(task.sinks[head] - scratch.maxima[row * kVecLanes])));
    total += sink[0];
  }
  StoreScaled(sums, 1.0f / total, task.head_dim, out);
}

// Copies the queries and begins their sums.
template <class Type>
void BeginRows(const AttentionRows& rows, const AttentionScratch<Type>& scratch) {
  using Element = typename Type::Element;
  const AttentionTask& task = rows.task;
  const int dim = task.padded_dim;
  auto query_of_row = [&](int row) {
    return static_cast<const Element*>(task.q) + rows.TokenOf(row) * task.q_stride +
           rows.HeadOf(row) * task.head_dim;
  };
  // Query rows of one head lie far apart: without this each of them would be a cache miss.
  for (int row = 0; row < rows.count; ++row) {
    for (int i = 0; i < task.head_dim; i += 64 / static_cast<int>(sizeof(Element))) {
      __builtin_prefetch(query_of_row(row) + i);
    }
  }
  for (int row = 0; row < rows.count; ++row) {
    const Element* q = query_of_row(row);
    Element* to = scratch.q + int64_t{row} * dim;
    for (int i = 0; i < dim; i += kVecLanes) {
      const int left = task.head_dim - i;
      Store(to + i, LoadN(q + i, left < kVecLanes ? left : kVecLanes));
      Store(scratch.sums + int64_t{row} * dim + i, Zero());
    }
    Store(scratch.totals + row * kVecLanes, Zero());
    scratch.maxima[row * kVecLanes] = -__builtin_inff();
  }
  // In a loop of its own: a call in another would put its vectors on the stack.
  for (int row = 0; task.kv_format == KvFormat::kInt4 && row < rows.count; ++row) {
    RotateRow(scratch.q + int64_t{row} * dim, task.head_dim, dim);
  }
}

// The weights of all rows for the step that begins at key `step`. kWritesAll: also those of rows
// that see none of its keys.
template <class Type, bool kWritesAll>
void SoftmaxRows(const AttentionRows& rows, const SeenKeys& seen, int step,
                 const AttentionScratch<Type>& scratch) {
  const AttentionTask& task = rows.task;
  for (int row = 0; row < rows.count; ++row) {
    const int position = rows.PositionOf(row);
    const int begin = seen.First(position) - step, end = seen.Last(position) + 1 - step;
    if (end <= 0 || begin >= kStepTokens) {
      if constexpr (kWritesAll) {
        __builtin_memset(scratch.weights + row * kStepTokens, 0,
                         kStepTokens * sizeof(typename Type::Element));
      }
      continue;
    }
    const float slope = task.slopes == nullptr ? 0 : task.slopes[rows.HeadOf(row)];
    if (begin <= 0 && end >= kStepTokens) {
      SoftmaxStep<Type, true>(task, scratch, row, begin, kStepTokens, slope, step - position);
    } else {
      SoftmaxStep<Type, false>(task, scratch, row, begin, end, slope, step - position);
    }
  }
}

template <class Type, class Products = VectorProducts<Type>>
void Attention(const AttentionTask& task, const AttentionItem& item, int part, float* memory) {
  const AttentionRows rows = {.task = task, .item = item, .first_head = part * task.heads_at_once};
  const SeenKeys seen = {.task = task, .item = item};
  const int dim = task.padded_dim;
  const AttentionScratch<Type> scratch(memory, Products::RoomRows(rows.count), dim);
  const Products products(rows.count, dim);
  BeginRows<Type>(rows, scratch);

  const int first_step = seen.First(item.first_position) / kStepTokens * kStepTokens;
  const int last_key = seen.Last(item.first_position + item.num_queries - 1);
  for (int step = first_step; step <= last_key; step += kStepTokens) {
    StepTile tiles[kStepTiles];
    int num_tiles = 0;
    for (int number = 0; number < kStepTiles; ++number) {
      const int key = step + number * kTileTokens;
      if (key > last_key) break;
      StepTile& tile = tiles[num_tiles];
      tile.number = number;
      tile.valid = item.context_len - key < kTileTokens ? item.context_len - key : kTileTokens;
      if (!FindRows(rows, seen, key, &tile)) continue;
      FetchTile<Type>(rows, key, scratch, &tile);
      ++num_tiles;
    }
    products.Scores(scratch, tiles, num_tiles, rows.count, dim);
    SoftmaxRows<Type, Products::kReadsAllWeights>(rows, seen, step, scratch);
    products.Values(scratch, tiles, num_tiles, rows.count, dim);
  }

  for (int row = 0; row < rows.count; ++row) {
    const int head = rows.HeadOf(row);
    EndRow(task, scratch, row, head,
           static_cast<typename Type::Element*>(task.out) + rows.TokenOf(row) * task.out_stride +
               head * task.head_dim);
  }
}

}  // namespace
}  // namespace tandem
