#pragma once

// Allocates KV-cache blocks and remembers full ones for reuse (the prefix cache).
// Thread: engine loop. Owns: block metadata, not tensor memory. Block 0 is the null block: it is
// never allocated and never freed.
// A block is free (on the free list, perhaps still found by its hash) or held (by num_holders
// requests). Allocation takes the front of the free list. Freed blocks with a hash go to its back,
// so the least recently freed content is lost first; those without one go to its front. The content
// for a hash is that of one group of layers (layer_groups.h), so a block is found by both.
// Everything is O(1) per block.
// REQUIRES for Allocate: at most num_free() blocks; for Free: the caller holds each block once.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/packed_bytes.h"
#include "common/status.h"
#include "engine_core/kv_cache/block_hash.h"
#include "engine_core/kv_cache/block_residency.h"
#include "engine_core/kv_cache/kv_cache_event.h"
#include "engine_core/kv_cache/prefix_map.h"

namespace tandem {

class BlockPool {
 public:
  // events (nullptr: off) gets a BlockRemoved whenever content is lost; residency (likewise) gets
  // allocations and hits. Both must outlive the pool.
  BlockPool(int32_t num_blocks, std::vector<KvCacheEvent>* events,
            BlockResidency* residency = nullptr);

  // Takes blocks.size() blocks off the front and forgets their content.
  void Allocate(std::span<BlockId> blocks);
  // Adds a holder to a block that Find returned; a free block leaves the free list.
  void Hold(BlockId block);
  // Removes one holder from each block of a table, last block first; null blocks are skipped.
  void Free(std::span<const BlockId> table);

  // The block registered first among those with this hash.
  std::optional<BlockId> Find(const BlockHash& hash, int32_t group = 0) const;
  // Makes a held block findable. Several blocks may have the same hash.
  void Register(BlockId block, const BlockHash& hash, int32_t group = 0);
  // Removes the block's hash, if it has one.
  void Unregister(BlockId block);
  // Removes this hash from every block that has it; free ones go to the front of the free list.
  void Forget(const BlockHash& hash, int32_t group = 0);
  // Forgets all content. REQUIRES: all blocks are free.
  void Clear();

  bool is_free(BlockId block) const { return At(block).num_holders == 0; }
  bool is_registered(BlockId block) const { return At(block).registered; }
  int32_t num_holders(BlockId block) const { return At(block).num_holders; }
  int32_t num_free() const { return num_free_; }
  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_cached_hashes() const { return map_.size(); }  // each once per group
  // Share of held blocks, not counting the null block.
  double Usage() const;
  // Front first; for tests and debuggers.
  std::vector<BlockId> FreeList() const;

  // The free list and what can be found, for a checkpoint.
  void Save(ByteWriter* out) const;
  // Into a new pool. num_holders: of each block, by tables that are known already. Reports no
  // events. DATA_LOSS: not what Save has written, or not for these tables.
  Status Load(std::span<const int32_t> num_holders, ByteReader* in);

 private:
  struct Block {
    // Neighbours on the free list; unused while held. Block 0's are the list's ends.
    BlockId next_free{};
    BlockId prev_free{};
    // Ring of blocks with the same key in order of registration; the map holds the first.
    BlockId next_same{};
    BlockId prev_same{};
    int32_t num_holders = 0;
    bool registered = false;
    uint8_t group = 0;
    BlockHash key;  // of its hash and group
  };

  Block& At(BlockId block) { return blocks_[static_cast<size_t>(Index(block))]; }
  const Block& At(BlockId block) const { return blocks_[static_cast<size_t>(Index(block))]; }
  bool LoadFreeList(ByteReader* in);
  bool LoadHashes(ByteReader* in);
  void Link(BlockId block, const BlockHash& key, int32_t group);
  void InsertFree(BlockId block, BlockId before);
  void RemoveFree(BlockId block);

  std::vector<Block> blocks_;
  PrefixMap map_;
  int32_t num_free_;
  std::vector<KvCacheEvent>* events_;
  BlockResidency* residency_;
};

}  // namespace tandem
