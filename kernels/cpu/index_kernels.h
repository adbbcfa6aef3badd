#pragma once

// How the index of a layer scores the keys of one token, on the vec_*.h of the including isa_*.cc:
// the tiles of the cache times the heads' queries, as in attention. How the chosen ones are put
// side by side.

#include "kernels/cpu/attention_kernels.h"

namespace tandem {
namespace {

// scores[i] += the sum over some heads of weights[h] max(0, products[h, i]), for a tile's keys.
template <class Element>
inline void AddPositive(const float* products, const Element* weights, int64_t num_heads,
                        float scale, float* scores) {
  for (int64_t h = 0; h < num_heads; ++h) {
    float weight[kVecLanes];
    Store(weight, LoadN(weights + h, 1));
    const Vec factor = Set1(weight[0] * scale);
    for (int i = 0; i < kTileTokens; i += kVecLanes) {
      const Vec positive = Max(Load(products + h * kStepTokens + i), Zero());
      Store(scores + i, Fma(factor, positive, Load(scores + i)));
    }
  }
}

template <class Type>
void IndexScores(const IndexTask& task, const void* q, const void* weights, const int32_t* blocks,
                 int64_t num_keys, float* scores) {
  const int64_t q_units = task.dim / Type::kStep;
  const auto* queries = static_cast<const uint32_t*>(q);
  const auto* of_heads = static_cast<const typename Type::Element*>(weights);
  for (int64_t key = 0; key < num_keys; key += kTileTokens, scores += kTileTokens) {
    const int64_t number = key / kTileTokens;
    const int64_t tile_idx = int64_t{blocks[number / task.tiles_per_block]} * task.tiles_per_block +
                             number % task.tiles_per_block;
    const StepTile tile = {.k = static_cast<const uint32_t*>(task.k) + tile_idx * task.tile_units,
                           .v = nullptr,
                           .number = 0,
                           .valid = kTileTokens,
                           .row_begin = 0,
                           .row_end = 0};
    for (int i = 0; i < kTileTokens; i += kVecLanes) Store(scores + i, Zero());
    for (int64_t head = 0; head < task.num_heads; head += kTileRows) {
      const int64_t left = task.num_heads - head;
      const int64_t num_heads = left < kTileRows ? left : kTileRows;
      alignas(64) float products[kTileRows * kStepTokens];
      WithRows(num_heads, [&]<int kRows>() {
        TileScores<Type, kRows, 1>(queries + head * q_units, q_units, &tile, products);
      });
      AddPositive(products, of_heads + head, num_heads, task.scale, scores);
    }
  }
}

inline void TakeTokens(const uint32_t* tile, const uint32_t* tokens, int64_t count, int64_t units,
                       uint32_t* to) {
  const Units index = LoadUnits(tokens);
  if (count == kVecLanes) {
    for (int64_t u = 0; u < units * kTileTokens; u += kTileTokens) {
      StoreUnits(to + u, TakeUnits(tile + u, index));
    }
    return;
  }
  for (int64_t u = 0; u < units * kTileTokens; u += kTileTokens) {
    StoreN(reinterpret_cast<float*>(to + u), FloatsOf(TakeUnits(tile + u, index)), count);
  }
}

}  // namespace
}  // namespace tandem
