#pragma once

// The tiles of a step of attention_kernels.h: which rows of an item see a key of a tile, and where
// its K and V are. A cache in another format than the compute type is widened into the scratch.

#include "kernels/cpu/float8_kernels.h"
#include "kernels/cpu/int4_kv_kernels.h"
#include "kernels/cpu/linear_kernels.h"

namespace tandem {
namespace {

constexpr int kStepTiles = kStepTokens / kTileTokens;

template <class Type>
struct AttentionScratch {
  typename Type::Element* q;        // [rows][padded_dim]
  typename Type::Element* weights;  // [rows][kStepTokens], exp(score - maximum) of this step
  float* scores;                    // [rows][kStepTokens]
  float* sums;                      // [rows][padded_dim], sum of weight * V
  float* totals;                    // [rows][16], sum of weights by lane
  float* maxima;                    // [rows][16], lane 0 only
  // Of a cache in another format than kCompute, for this step:
  typename Type::Element* k;  // [kStepTiles] tiles
  typename Type::Element* v;
  float* k_scales;  // [kStepTokens], of int8 and float8
  float* v_scales;

  AttentionScratch(float* memory, int64_t rows, int64_t padded_dim) {
    k = reinterpret_cast<typename Type::Element*>(memory);
    v = k + kStepTokens * padded_dim;
    memory += 2 * kStepTokens * padded_dim;
    k_scales = memory;
    v_scales = memory + kStepTokens;
    memory += 2 * kStepTokens;
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

// A tile of the current step, and the rows that see any of its keys.
struct StepTile {
  const uint32_t* k;
  const uint32_t* v;
  int number;  // in the step
  int valid;   // keys of the request in it; kTileTokens or less
  int row_begin;
  int row_end;
};

// The rows of an item: query heads of one KV head, for each query in turn.
struct AttentionRows {
  const AttentionTask& task;
  const AttentionItem& item;
  int first_head;
  int group = task.heads_at_once;
  int count = item.num_queries * group;

  int HeadOf(int row) const { return first_head + row % group; }
  int PositionOf(int row) const { return item.first_position + row / group; }
  int64_t TokenOf(int row) const { return item.first_token + row / group; }
};

// The keys that a query sees: those from First to Last of its position.
struct SeenKeys {
  const AttentionTask& task;
  const AttentionItem& item;
  int num_before = task.is_bidirectional ? task.window / 2 : task.window - 1;
  int num_after = !task.is_bidirectional ? 0 : task.window > 0 ? task.window / 2 : item.context_len;

  int First(int position) const {
    if (task.chunk > 0) return position / task.chunk * task.chunk;
    return task.window > 0 && position > num_before ? position - num_before : 0;
  }
  int Last(int position) const {
    int key = position + num_after;
    if (task.last_seen != nullptr) {
      const int seen = task.last_seen[item.first_token + position - item.first_position];
      key = seen > key ? seen : key;
    }
    return key < item.context_len ? key : item.context_len - 1;
  }
};

// The numbers of an int8 tile in the compute type, before their scales: scores are multiplied by
// K's scales, weights by V's.
template <class Type>
void WidenTile(const void* cache, int64_t tile, int64_t padded_dim, typename Type::Element* numbers,
               float* scales) {
  const auto* bytes = static_cast<const int8_t*>(cache) + tile * Int8TileBytes(padded_dim);
  const int64_t count = kTileTokens * padded_dim;
  for (int64_t i = 0; i < count; i += kVecLanes) Store(numbers + i, LoadBytes(bytes + i));
  __builtin_memcpy(scales, bytes + count, kTileTokens * sizeof(float));
}

// The same of a float8 tile, whose tokens share a scale.
template <class Type>
void WidenFloat8Tile(const void* cache, int64_t tile, int64_t padded_dim, float scale,
                     typename Type::Element* numbers, float* scales) {
  const auto* codes = static_cast<const uint8_t*>(cache) + tile * Float8TileBytes(padded_dim);
  const int64_t count = kTileTokens * padded_dim;
  for (int64_t i = 0; i < count; i += kVecLanes) Store(numbers + i, LoadFloat8s(codes + i));
  for (int64_t i = 0; i < kTileTokens; ++i) scales[i] = scale;
}

// K and V of a tile, whose first token is in_step of the step, in the compute type. A latent has K
// alone.
template <class Type>
__attribute__((noinline)) void WidenTiles(const AttentionTask& task, int64_t tile, int in_step,
                                          const AttentionScratch<Type>& scratch,
                                          typename Type::Element* k, typename Type::Element* v) {
  const int64_t dim = task.padded_dim;
  if (task.kv_format == KvFormat::kInt4) {
    const int64_t at = tile * Int4TileBytes(dim);
    WidenInt4Keys<Type>(static_cast<const uint8_t*>(task.k) + at, dim, k);
    if (!task.is_latent) WidenInt4Values<Type>(static_cast<const uint8_t*>(task.v) + at, dim, v);
    return;
  }
  const auto widen = [&](const void* cache, float scale, typename Type::Element* numbers,
                         float* scales) {
    if (task.kv_format == KvFormat::kInt8) {
      WidenTile<Type>(cache, tile, dim, numbers, scales + in_step);
    } else {
      WidenFloat8Tile<Type>(cache, tile, dim, scale, numbers, scales + in_step);
    }
  };
  widen(task.k, task.k_scale, k, scratch.k_scales);
  if (task.is_latent) {
    __builtin_memcpy(scratch.v_scales + in_step, scratch.k_scales + in_step,
                     kTileTokens * sizeof(float));
  } else {
    widen(task.v, task.v_scale, v, scratch.v_scales);
  }
}

// A K tile in the order of a V tile. kStep numbers of a token lie side by side in the one, those of
// kStep tokens in the other.
template <class Type>
void TransposeTile(const uint32_t* k, int64_t padded_dim, uint32_t* v) {
  if constexpr (Type::kStep == 1) {
    for (int64_t i = 0; i < padded_dim; ++i) {
      for (int t = 0; t < kTileTokens; ++t) v[t * padded_dim + i] = k[i * kTileTokens + t];
    }
  } else {
    static_assert(Type::kStep == 2);
    for (int64_t i = 0; i < padded_dim; i += 16) {
      TransposePairs(k + i / 2 * kTileTokens, v + i, padded_dim);
    }
  }
}

// Which rows see a key of the tile that begins at `key`. False: none.
inline bool FindRows(const AttentionRows& rows, const SeenKeys& seen, int key, StepTile* tile) {
  const AttentionTask& task = rows.task;
  const AttentionItem& item = rows.item;
  // The row that follows those of this many queries.
  auto row_after = [&](int queries) {
    return queries < 0 ? 0 : queries < item.num_queries ? queries * rows.group : rows.count;
  };
  const int first_seeing = key - seen.num_after - item.first_position;
  tile->row_begin = first_seeing > 0 ? first_seeing * rows.group : 0;
  if (task.last_seen != nullptr) {
    tile->row_begin = 0;
    while (seen.Last(rows.PositionOf(tile->row_begin)) < key) tile->row_begin += rows.group;
  }
  tile->row_end = rows.count;
  if (task.window > 0) {
    tile->row_end = row_after(key + kTileTokens + seen.num_before - item.first_position);
  }
  if (task.chunk > 0) {
    const int next_chunk = ((key + kTileTokens - 1) / task.chunk + 1) * task.chunk;
    tile->row_end = row_after(next_chunk - item.first_position);
  }
  return tile->row_begin < tile->row_end;
}

// K and V of the tile that begins at `key`: the cache's own, or made of it in the scratch.
template <class Type>
void FetchTile(const AttentionRows& rows, int key, const AttentionScratch<Type>& scratch,
               StepTile* tile) {
  using Element = typename Type::Element;
  const AttentionTask& task = rows.task;
  const AttentionItem& item = rows.item;
  const int64_t dim = task.padded_dim;
  const int64_t tile_units = kTileTokens * dim / Type::kStep;
  const int kv_head = rows.first_head * task.num_kv_heads / task.num_heads;
  const int block_tokens = task.tiles_per_block * kTileTokens;
  const int64_t tile_idx = int64_t{item.blocks[key / block_tokens]} * task.tiles_per_block +
                           key % block_tokens / kTileTokens;
  const int64_t cache_tile = tile_idx * task.num_kv_heads + kv_head;
  const bool is_wide = task.kv_format == KvFormat::kCompute;
  Element* const made_v = scratch.v + int64_t{tile->number} * kTileTokens * dim;
  if (is_wide) {
    tile->k = static_cast<const uint32_t*>(task.k) + cache_tile * tile_units;
    tile->v = static_cast<const uint32_t*>(task.v) + cache_tile * tile_units;
  } else {
    Element* const made_k = scratch.k + int64_t{tile->number} * kTileTokens * dim;
    WidenTiles<Type>(task, cache_tile, tile->number * kTileTokens, scratch, made_k, made_v);
    tile->k = reinterpret_cast<const uint32_t*>(made_k);
    tile->v = reinterpret_cast<const uint32_t*>(made_v);
  }
  if (task.is_latent) {
    TransposeTile<Type>(tile->k, dim, reinterpret_cast<uint32_t*>(made_v));
    tile->v = reinterpret_cast<const uint32_t*>(made_v);
  } else if (is_wide) {
    // A single query is done with K before the hardware would have fetched V.
    for (int64_t u = 0; item.num_queries == 1 && u < tile_units; u += kVecLanes) {
      __builtin_prefetch(tile->v + u);
    }
  }
}

}  // namespace
}  // namespace tandem
