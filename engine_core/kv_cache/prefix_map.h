#pragma once

// A map from block hash to block, of fixed size: open addressing, linear probing, removal by
// shifting back. A digest is its own hash value. Thread: engine loop. Never allocates after
// construction. Find returns nullptr for a miss. REQUIRES for Insert: absent, and fewer than
// num_blocks entries.

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/block_hash.h"

namespace tandem {

class PrefixMap {
 public:
  explicit PrefixMap(int32_t num_blocks);

  BlockId* Find(const BlockHash& hash);
  const BlockId* Find(const BlockHash& hash) const {
    return const_cast<PrefixMap*>(this)->Find(hash);
  }
  void Insert(const BlockHash& hash, BlockId block);
  void Erase(const BlockHash& hash);  // REQUIRES: present
  void Clear();
  int32_t size() const { return size_; }

 private:
  struct Entry {
    BlockHash hash;
    BlockId block{};  // 0, the null block, marks an empty entry
  };
  size_t Home(const BlockHash& hash) const { return hash.Bits() & mask_; }

  std::vector<Entry> entries_;  // a power of two, at least twice num_blocks
  size_t mask_;
  int32_t size_ = 0;
};

}  // namespace tandem
