#include "kernels/paged_kv.h"

namespace tandem {

KvCache::KvCache(const KvCacheSpec& spec, OwnedTensor memory, const KeyBytes& key_bytes)
    : spec_(spec), memory_(std::move(memory)) {
  const auto vectors = static_cast<size_t>(spec.vectors_per_head());
  auto* const base = static_cast<std::byte*>(memory_.view().data);
  std::byte* key = base;  // of the next layer
  std::byte* state =
      base + spec.num_blocks * (spec.bytes_per_block(key_bytes) - spec.state_bytes_per_block());
  for (int i = 0; i < spec.num_layers; ++i) {
    const LayerMemory kept = spec.memory_of(i);
    LayerKv& layer = layers_.emplace_back(LayerKv{.num_kv_heads = kept.num_kv_heads,
                                                  .head_dim = kept.head_dim,
                                                  .block_size = spec.block_size,
                                                  .num_blocks = spec.num_blocks,
                                                  .format = spec.format,
                                                  .is_latent = spec.is_latent});
    if (kept.has_kv) {
      const auto key_size =
          static_cast<size_t>(key_bytes(kept.num_kv_heads, kept.head_dim) * spec.num_blocks);
      layer.k = key;
      layer.v = key + (vectors - 1) * key_size;
      key += vectors * key_size;
    } else if (kept.kv_of >= 0) {
      layer.k = layers_[static_cast<size_t>(kept.kv_of)].k;
      layer.v = layers_[static_cast<size_t>(kept.kv_of)].v;
    }
    if (kept.has_state) {
      layer.states = reinterpret_cast<float*>(state);
      layer.state_size = spec.state_size;
      state += spec.num_blocks * spec.state_size * int64_t{sizeof(float)};
    }
  }
}

}  // namespace tandem
