#include "tests/simulation/kv_event_shadow.h"

#include <span>

namespace tandem {

Status KvEventShadow::Apply(const std::vector<KvCacheEvent>& events) {
  for (const KvCacheEvent& event : events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      RETURN_IF_ERROR(Store(*stored));
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      RETURN_IF_ERROR(Remove(*removed));
    } else {
      num_blocks_.clear();
    }
  }
  return OkStatus();
}

Status KvEventShadow::Store(const BlockStored& stored) {
  Prefix prefix;
  if (stored.parent) {
    const auto parent = known_.find(stored.parent->bytes);
    if (parent == known_.end()) return InternalError("KV event: stored after an unknown parent");
    prefix = parent->second;
  }
  // Sequences with the parent may have different images after it.
  prefix.extra_keys = stored.extra_keys;
  const size_t num_blocks = stored.block_hashes.size();
  if (num_blocks == 0 || stored.token_ids.size() % num_blocks != 0) {
    return InternalError("KV event: tokens do not fill the stored blocks");
  }
  const size_t block_size = stored.token_ids.size() / num_blocks;
  for (size_t i = 0; i < num_blocks; ++i) {
    const auto tokens = std::span(stored.token_ids).subspan(i * block_size, block_size);
    prefix.token_ids.insert(prefix.token_ids.end(), tokens.begin(), tokens.end());
    std::vector<BlockHash> hashes;
    hasher_.Extend(prefix.token_ids, prefix.extra_keys, &hashes);
    if (hashes.empty() || !(hashes.back() == stored.block_hashes[i])) {
      return InternalError("KV event: a stored hash is not that of its tokens");
    }
    ++num_blocks_[{stored.block_hashes[i].bytes, stored.group}];
    known_[stored.block_hashes[i].bytes] = prefix;
  }
  return OkStatus();
}

Status KvEventShadow::Remove(const BlockRemoved& removed) {
  const auto found = num_blocks_.find({removed.block_hash.bytes, removed.group});
  if (found == num_blocks_.end()) return InternalError("KV event: removed an unknown hash");
  if (--found->second == 0) num_blocks_.erase(found);
  return OkStatus();
}

}  // namespace tandem
