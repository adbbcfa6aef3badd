#pragma once

// KV events of the places beyond the cache. They have hashes alone: what these stand for is in the
// events of the cache, from which each block came. Those of what comes from there say it again for
// readers that want it. Thread: engine loop.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine_core/kv_cache/kv_cache_event.h"

namespace tandem {

// events: null if nobody is to know.
inline void AddStored(KvMedium medium, std::vector<BlockHash> hashes,
                      std::vector<KvCacheEvent>* events) {
  if (events == nullptr || hashes.empty()) return;
  BlockStored stored;
  stored.block_hashes = std::move(hashes);
  stored.medium = medium;
  events->emplace_back(std::move(stored));
}

// Adds a block of a sequence, whose hashes these are, to what is stored in host memory.
inline void Describe(size_t block, std::span<const TokenId> token_ids,
                     std::span<const BlockHash> hashes, const ExtraKeys& extra_keys,
                     int32_t block_size, std::vector<BlockStored>* described) {
  const auto first_block = static_cast<int32_t>(block);
  const bool continues =
      !described->empty() &&
      first_block == described->back().first_block +
                         static_cast<int32_t>(described->back().block_hashes.size());
  if (!continues) {
    BlockStored& begun = described->emplace_back();
    if (block > 0) begun.parent = hashes[block - 1];
    begun.extra_keys = extra_keys;
    begun.first_block = first_block;
    begun.medium = KvMedium::kHostMemory;
  }
  const auto size = static_cast<size_t>(block_size);
  const auto tokens = token_ids.subspan(block * size, size);
  BlockStored& stored = described->back();
  stored.block_hashes.push_back(hashes[block]);
  stored.token_ids.insert(stored.token_ids.end(), tokens.begin(), tokens.end());
}

inline void AddRemoved(KvMedium medium, const BlockHash& hash, std::vector<KvCacheEvent>* events) {
  if (events != nullptr) events->emplace_back(BlockRemoved{hash, medium});
}

}  // namespace tandem
