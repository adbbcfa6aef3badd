#include "kernels/paged_kv.h"

#include <limits>
#include <string>

namespace tandem {

Status CheckNumBlocks(const KvCacheSpec& spec, const KeyBytes& key_bytes) {
  const int64_t most = std::numeric_limits<int32_t>::max() / spec.block_size;
  if (spec.num_blocks * spec.numbers_per_block(key_bytes) <= most) return OkStatus();
  return ResourceExhaustedError("a KV cache of " + std::to_string(spec.num_blocks) +
                                " blocks has too many slots to be numbered; lower "
                                "--kv-cache-memory-bytes or --num-gpu-blocks-override");
}

KvCache::KvCache(const KvCacheSpec& spec, OwnedTensor memory, const KeyBytes& key_bytes)
    : spec_(spec),
      numbers_per_block_(spec.numbers_per_block(key_bytes)),
      memory_(std::move(memory)) {
  CHECK(!spec.has_states_in_place || spec.layers.empty());
  const int64_t num_blocks = spec.num_blocks * numbers_per_block_;
  auto* const base = static_cast<std::byte*>(memory_.view().data);
  std::byte* key = base;  // of the next layer
  std::byte* state =
      base + spec.num_blocks * (spec.bytes_per_block(key_bytes) - spec.state_bytes_per_block());
  for (int i = 0; i < spec.num_layers; ++i) {
    const LayerMemory kept = spec.memory_of(i);
    LayerKv& layer = layers_.emplace_back(LayerKv{.num_kv_heads = kept.num_kv_heads,
                                                  .head_dim = kept.head_dim,
                                                  .block_size = spec.block_size,
                                                  .num_blocks = num_blocks,
                                                  .format = spec.format,
                                                  .is_latent = spec.is_latent});
    if (kept.has_state) layer.state_size = layer.state_stride = spec.state_size;
    const int64_t bytes = kept.has_kv ? key_bytes(kept.num_kv_heads, kept.head_dim) : 0;
    if (spec.has_states_in_place) {
      layer.k = key;
      layer.v = key + (spec.vectors_per_head() - 1) * bytes;
      layer.states = reinterpret_cast<float*>(key);
      layer.state_stride = bytes / int64_t{sizeof(float)};
      CHECK_EQ(bytes % int64_t{sizeof(float)}, 0);
      key += num_blocks * bytes;
      continue;
    }
    if (kept.has_kv) {
      layer.k = key;
      layer.v = key + (spec.vectors_per_head() - 1) * num_blocks * bytes;
      key += spec.vectors_per_head() * num_blocks * bytes;
    } else if (kept.kv_of >= 0) {
      layer.k = layers_[static_cast<size_t>(kept.kv_of)].k;
      layer.v = layers_[static_cast<size_t>(kept.kv_of)].v;
    }
    if (kept.has_state) {
      layer.states = reinterpret_cast<float*>(state);
      state += spec.num_blocks * spec.state_bytes();
    }
  }
}

}  // namespace tandem
