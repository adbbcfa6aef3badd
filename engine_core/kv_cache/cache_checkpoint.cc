// Checkpoints of the cache's metadata: which blocks each request holds, the order of the free list,
// and the hashes. Not the content: that is computed again.

#include <algorithm>

#include "common/check.h"
#include "engine_core/kv_cache/block_pool.h"
#include "engine_core/kv_cache/kv_cache_manager.h"

namespace tandem {

// ---- the pool ----

// The free list is written as runs of ascending numbers: it begins as one.
void BlockPool::Save(ByteWriter* out) const {
  out->Varint(static_cast<uint64_t>(num_free_));
  for (BlockId block = At(kNullBlock).next_free; block != kNullBlock;) {
    const BlockId first = block;
    int32_t length = 0;
    do {
      ++length;
      block = At(block).next_free;
    } while (block != kNullBlock && Index(block) == Index(first) + length);
    out->Varint(static_cast<uint64_t>(Index(first)));
    out->Varint(static_cast<uint64_t>(length));
  }
  out->Varint(static_cast<uint64_t>(map_.size()));
  for (int32_t i = 1; i < num_blocks(); ++i) {
    const BlockId first{i};
    if (!is_registered(first) || *map_.Find(At(first).key) != first) continue;
    uint64_t num_same = 1;
    for (BlockId b = At(first).next_same; b != first; b = At(b).next_same) ++num_same;
    out->Fixed(At(first).key);
    out->Varint(At(first).group);
    out->Varint(num_same);
    out->Varint(static_cast<uint64_t>(i));
    for (BlockId b = At(first).next_same; b != first; b = At(b).next_same) {
      out->Varint(static_cast<uint64_t>(Index(b)));
    }
  }
}

Status BlockPool::Load(std::span<const int32_t> num_holders, ByteReader* in) {
  CHECK(map_.size() == 0 && num_holders.size() == blocks_.size());
  for (size_t i = 1; i < blocks_.size(); ++i) blocks_[i].num_holders = num_holders[i];
  At(kNullBlock).next_free = At(kNullBlock).prev_free = kNullBlock;
  num_free_ = 0;
  if (!LoadFreeList(in) || !LoadHashes(in))
    return DataLossError("its KV blocks do not fit together");
  return OkStatus();
}

bool BlockPool::LoadFreeList(ByteReader* in) {
  const uint64_t num_free = in->Varint();
  std::vector<bool> seen(blocks_.size());
  while (static_cast<uint64_t>(num_free_) < num_free) {
    const uint64_t first = in->Varint(), length = in->Varint();
    if (!in->ok() || first == 0 || length == 0 || length > blocks_.size() ||
        first > blocks_.size() - length) {
      return false;
    }
    for (uint64_t i = first; i < first + length; ++i) {
      const BlockId block{static_cast<int32_t>(i)};
      if (seen[i] || !is_free(block)) return false;
      seen[i] = true;
      InsertFree(block, kNullBlock);
    }
  }
  int64_t num_held = 0;
  for (const Block& block : blocks_) num_held += block.num_holders > 0 ? 1 : 0;
  return in->ok() && num_held + num_free_ == num_blocks() - 1;
}

bool BlockPool::LoadHashes(ByteReader* in) {
  for (size_t left = in->Count(); left > 0; --left) {
    const auto key = in->Fixed<BlockHash>();
    const uint64_t group = in->Varint();
    if (!in->ok() || map_.Find(key) != nullptr || group >= kMostGroups) return false;
    for (size_t num_same = in->Count(); num_same > 0; --num_same) {
      const uint64_t block = in->Varint();
      if (!in->ok() || block == 0 || block >= blocks_.size() || blocks_[block].registered) {
        return false;
      }
      Link(BlockId{static_cast<int32_t>(block)}, key, static_cast<int32_t>(group));
    }
  }
  return in->ok();
}

// ---- tables ----

void KvCacheManager::Save(ByteWriter* out) const {
  uint64_t num_used = 0;
  for (const Row& row : rows_) num_used += row.num_places > 0 ? 1 : 0;
  out->Varint(num_used);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (row.num_places == 0) continue;
    out->Varint(i);
    out->Signed(row.num_null);
    out->Signed(row.num_registered);
    out->List(BlockTable(RequestSlot{static_cast<int32_t>(i)}));
  }
  pool_.Save(out);
}

Status KvCacheManager::Load(ByteReader* in) {
  std::vector<int32_t> num_holders(static_cast<size_t>(pool_.num_blocks()));
  std::vector<BlockId> table;
  for (size_t left = in->Count(); left > 0; --left) {
    const uint64_t slot = in->Varint();
    const int64_t num_null = in->Signed(), num_registered = in->Signed();
    in->List(&table);
    const auto num_places = static_cast<int64_t>(table.size()) / num_groups_;
    bool fits = in->ok() && slot < rows_.size() && num_places > 0 && num_places <= max_places_ &&
                num_places * num_groups_ == static_cast<int64_t>(table.size()) && num_null >= 0 &&
                num_null <= num_places && num_registered >= 0 && num_registered <= num_places;
    for (const BlockId block : table) {
      fits = fits && Index(block) >= 0 && Index(block) < pool_.num_blocks();
      if (fits && block != kNullBlock) ++num_holders[static_cast<size_t>(Index(block))];
    }
    if (!fits || rows_[slot].num_places > 0) return DataLossError("a block table does not fit");
    std::copy(table.begin(), table.end(), Table(RequestSlot{static_cast<int32_t>(slot)}));
    rows_[slot] = {.num_places = static_cast<int32_t>(num_places),
                   .num_null = static_cast<int32_t>(num_null),
                   .num_registered = static_cast<int32_t>(num_registered)};
  }
  return pool_.Load(num_holders, in);
}

}  // namespace tandem
