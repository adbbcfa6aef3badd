#pragma once

// The prefix cache as a router sees it: built from KV events alone. Hash counts are what can be
// found; each stored block is hashed again from the tokens in its event and those of its parents.
// Thread: any one. Failure: an impossible event is INTERNAL with the reason.

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "common/status.h"
#include "engine_core/kv_cache/block_hash.h"
#include "engine_core/kv_cache/kv_cache_event.h"

namespace tandem {

class KvEventShadow {
 public:
  explicit KvEventShadow(int32_t block_size) : hasher_(block_size) {}

  Status Apply(const std::vector<KvCacheEvent>& events);
  // Distinct hashes that can be found, each once per group of layers.
  size_t num_hashes() const { return num_blocks_.size(); }

 private:
  using Key = std::array<uint8_t, 32>;
  struct Prefix {
    std::vector<TokenId> token_ids;
    ExtraKeys extra_keys;
  };
  Status Store(const BlockStored& stored);
  Status Remove(const BlockRemoved& removed);

  BlockHasher hasher_;
  std::map<std::pair<Key, int32_t>, int> num_blocks_;  // of a group, that hold it
  std::map<Key, Prefix> known_;                        // every block ever stored
};

}  // namespace tandem
