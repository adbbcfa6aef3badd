// Attention over chosen keys. The index scores all keys of a token where they lie; the latents that
// it chooses are gathered into tiles of the thread's own, which attention walks as any others.

#include "kernels/selected_keys.h"

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace tandem {
namespace {

constexpr int64_t WholeTiles(int64_t num_keys) {
  return (num_keys + kTileTokens - 1) / kTileTokens * kTileTokens;
}

// Units of a tile of such heads in the cache.
int64_t TileUnits(int64_t head_dim, int k_step) {
  return PaddedHeadDim(static_cast<int>(head_dim)) / k_step * kTileTokens;
}

// Where the latents of the cache are, and what of them goes into a thread's tiles.
struct LatentTiles {
  const LayerKv& kv;
  int64_t kv_tile_units;
  int64_t units;  // of a latent, in tiles of tile_units
  int64_t tile_units;
};

// The first units of each chosen latent, side by side in `tiles`. Neighbours of one tile go
// together.
void Gather(const KernelTable& kernels, const TokenOfRun& token, std::span<const int32_t> chosen,
            const LatentTiles& latents, uint32_t* tiles) {
  const auto num_chosen = static_cast<int64_t>(chosen.size());
  const auto slot_of = [&](int64_t i) {
    return token.SlotOf(chosen[static_cast<size_t>(i)], latents.kv);
  };
  for (int64_t i = 0; i < num_chosen;) {
    uint32_t* to = tiles + i / kTileTokens * latents.tile_units;
    if (i % kTileTokens == 0) {
      std::fill(to + latents.units * kTileTokens, to + latents.tile_units, 0);
    }
    const int64_t tile = slot_of(i) / kTileTokens;
    const int64_t room = std::min<int64_t>(kStripColumns, kTileTokens - i % kTileTokens);
    uint32_t tokens[kStripColumns] = {};
    int64_t count = 0;
    for (; count < room && i + count < num_chosen; ++count) {
      const int64_t slot = slot_of(i + count);
      if (slot / kTileTokens != tile) break;
      tokens[count] = static_cast<uint32_t>(slot % kTileTokens);
    }
    const auto* from = static_cast<const uint32_t*>(latents.kv.k) + tile * latents.kv_tile_units;
    kernels.take_tokens(from, tokens, count, latents.units, to + i % kTileTokens);
    i += count;
  }
}

}  // namespace

void CpuOps::DoSelectKeys(const Tensor& selected, const Tensor& q, const Tensor& weights,
                          const IndexOptions& options, const LayerKv& kv,
                          const AttentionPlan& plan) {
  if (plan.num_tokens() == 0) return;
  const int k_step = kernels().k_step;
  IndexTask task;
  task.k = static_cast<const uint32_t*>(kv.k) + (kv.head_dim - options.dim) / k_step * kTileTokens;
  task.tile_units = TileUnits(kv.head_dim, k_step);
  task.tiles_per_block = kv.block_size / kTileTokens;
  task.num_heads = static_cast<int>(options.num_heads);
  task.dim = static_cast<int>(options.dim);
  task.scale = options.scale;
  int64_t max_keys = 0;
  for (const BatchSequence& sequence : plan.sequences()) {
    max_keys = std::max<int64_t>(max_keys, sequence.first_position + sequence.num_tokens);
  }
  const int64_t room = WholeTiles(max_keys);
  ForEach(plan.num_tokens(), max_keys * q.shape[1] / 50 + 500,
          [&](int64_t begin, int64_t end, int thread) {
            float* scores = Scratch(thread, 2 * room);
            auto* order = reinterpret_cast<int32_t*>(scores + room);
            for (int64_t row = begin; row < end; ++row) {
              const TokenOfRun token = TokenOfRow(plan, row);
              const std::span<int32_t> chosen = ChosenOf(selected, row);
              if (ChooseAll(token, chosen)) continue;
              kernels().index_scores(task, q.Rows(row, 1).data, weights.Rows(row, 1).data,
                                     token.sequence.blocks, token.num_keys(), scores);
              ChooseBest(scores, token.num_keys(), order, chosen);
            }
          });
}

void CpuOps::DoAttendSelected(const Tensor& out, const Tensor& q, const Tensor& selected,
                              const SelectedOptions& options, const LayerKv& kv,
                              const AttentionPlan& plan) {
  const int k_step = kernels().k_step;
  const int64_t dim = q.shape[1] / options.num_heads;
  const int64_t tile_units = TileUnits(dim, k_step);
  const LatentTiles latents = {kv, TileUnits(kv.head_dim, k_step), dim / k_step, tile_units};
  AttentionTask task;
  task.q = q.data;
  task.q_stride = q.row_stride;
  task.out = out.data;
  task.out_stride = out.row_stride;
  task.is_latent = true;
  task.num_heads = static_cast<int>(options.num_heads);
  task.num_kv_heads = 1;
  task.heads_at_once = HeadsAtOnce(task.num_heads);
  task.head_dim = static_cast<int>(dim);
  task.padded_dim = static_cast<int>(PaddedHeadDim(task.head_dim));
  task.scale = options.scale;
  const int64_t max_tiles = WholeTiles(selected.shape[1]) / kTileTokens;
  task.tiles_per_block = static_cast<int>(max_tiles);
  const int64_t attention_floats = AttentionScratchFloats(kMaxQueryRows, task.padded_dim);
  const int64_t parts = task.num_heads / task.heads_at_once;
  const int64_t item_ns = selected.shape[1] * task.heads_at_once * task.padded_dim / 50 + 500;
  ForEach(plan.num_tokens() * parts, item_ns, [&](int64_t begin, int64_t end, int thread) {
    float* scratch = Scratch(thread, attention_floats + max_tiles * tile_units);
    auto* tiles = reinterpret_cast<uint32_t*>(scratch + attention_floats);
    AttentionTask own = task;
    own.k = own.v = tiles;
    const int32_t block = 0;
    AttentionItem item = {.blocks = &block, .first_token = -1, .num_queries = 1};
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts;
      if (row != item.first_token) {
        const auto chosen = Chosen(ChosenOf(selected, row));
        Gather(table_, TokenOfRow(plan, row), chosen, latents, tiles);
        item.first_token = static_cast<int32_t>(row);
        item.context_len = static_cast<int32_t>(chosen.size());
        item.first_position = item.context_len - 1;
      }
      kernels().attention(own, item, static_cast<int>(i % parts), scratch);
    }
  });
}

}  // namespace tandem
