#pragma once

// KV events of the places beyond the cache. vLLM's have hashes alone: what they stand for is in the
// events of the cache, from which each block came. Thread: engine loop.

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

inline void AddRemoved(KvMedium medium, const BlockHash& hash, std::vector<KvCacheEvent>* events) {
  if (events != nullptr) events->emplace_back(BlockRemoved{hash, medium});
}

}  // namespace tandem
