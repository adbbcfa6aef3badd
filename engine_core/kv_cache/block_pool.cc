#include "engine_core/kv_cache/block_pool.h"

#include <cstring>

#include "common/check.h"

namespace tandem {
namespace {

// The hash itself for group 0, and back.
BlockHash KeyOf(BlockHash hash, int32_t group) {
  uint64_t bits = hash.Bits() ^ static_cast<uint64_t>(group) * 0x9e3779b97f4a7c15;
  std::memcpy(hash.bytes.data() + hash.bytes.size() - sizeof(bits), &bits, sizeof(bits));
  return hash;
}

}  // namespace

// The null block is also the sentinel of the free list.

BlockPool::BlockPool(int32_t num_blocks, std::vector<KvCacheEvent>* events,
                     BlockResidency* residency)
    : blocks_(static_cast<size_t>(num_blocks)),
      map_(num_blocks),
      num_free_(num_blocks - 1),
      events_(events),
      residency_(residency) {
  CHECK_GE(num_blocks, 2);
  for (int32_t i = 0; i < num_blocks; ++i) {
    At(BlockId{i}).next_free = BlockId{i + 1 == num_blocks ? 0 : i + 1};
    At(BlockId{i}).prev_free = BlockId{i == 0 ? num_blocks - 1 : i - 1};
  }
}

void BlockPool::Allocate(std::span<BlockId> blocks) {
  CHECK_LE(blocks.size(), static_cast<size_t>(num_free_));
  for (BlockId& block : blocks) {
    block = At(kNullBlock).next_free;
    RemoveFree(block);
    Unregister(block);
    At(block).num_holders = 1;
    if (residency_ != nullptr) residency_->Allocated(block);
  }
}

void BlockPool::Hold(BlockId block) {
  if (At(block).num_holders++ == 0) RemoveFree(block);
  if (residency_ != nullptr) residency_->Hit(block);
}

void BlockPool::Free(std::span<const BlockId> table) {
  for (size_t i = table.size(); i-- > 0;) {
    if (table[i] == kNullBlock) continue;
    Block& block = At(table[i]);
    CHECK_GT(block.num_holders, 0) << "block " << Index(table[i]) << " freed twice";
    if (--block.num_holders == 0 && block.registered) InsertFree(table[i], kNullBlock);
  }
  // Pushed from the first on, so that the last block becomes the very front.
  for (BlockId id : table) {
    const Block& block = At(id);
    if (id != kNullBlock && block.num_holders == 0 && !block.registered) {
      InsertFree(id, At(kNullBlock).next_free);
    }
  }
}

std::optional<BlockId> BlockPool::Find(const BlockHash& hash, int32_t group) const {
  const BlockId* first = map_.Find(group == 0 ? hash : KeyOf(hash, group));
  return first == nullptr ? std::nullopt : std::optional(*first);
}

void BlockPool::Register(BlockId id, const BlockHash& hash, int32_t group) {
  CHECK(!At(id).registered && At(id).num_holders > 0) << "block " << Index(id);
  Link(id, group == 0 ? hash : KeyOf(hash, group), group);
}

void BlockPool::Link(BlockId id, const BlockHash& key, int32_t group) {
  Block& block = At(id);
  block.registered = true;
  block.key = key;
  block.group = static_cast<uint8_t>(group);
  const BlockId* first = map_.Find(key);
  if (first == nullptr) {
    map_.Insert(key, id);
    block.next_same = block.prev_same = id;
    return;
  }
  block.next_same = *first;
  block.prev_same = At(*first).prev_same;
  At(block.prev_same).next_same = id;
  At(*first).prev_same = id;
}

void BlockPool::Unregister(BlockId id) {
  Block& block = At(id);
  if (!block.registered) return;
  BlockId* first = map_.Find(block.key);
  CHECK(first != nullptr) << "block " << Index(id);
  if (block.next_same == id) {
    map_.Erase(block.key);
  } else {
    if (*first == id) *first = block.next_same;
    At(block.next_same).prev_same = block.prev_same;
    At(block.prev_same).next_same = block.next_same;
  }
  block.registered = false;
  if (events_ == nullptr) return;
  events_->emplace_back(
      BlockRemoved{.block_hash = KeyOf(block.key, block.group), .group = block.group});
}

void BlockPool::Forget(const BlockHash& hash, int32_t group) {
  while (const std::optional<BlockId> block = Find(hash, group)) {
    Unregister(*block);
    if (!is_free(*block)) continue;
    RemoveFree(*block);
    InsertFree(*block, At(kNullBlock).next_free);
  }
}

void BlockPool::Clear() {
  CHECK_EQ(num_free_, num_blocks() - 1);
  map_.Clear();
  for (Block& block : blocks_) block.registered = false;
  if (residency_ != nullptr) residency_->Clear();
  if (events_ != nullptr) events_->emplace_back(AllBlocksCleared{});
}

double BlockPool::Usage() const {
  return 1.0 - static_cast<double>(num_free_) / (num_blocks() - 1);
}

std::vector<BlockId> BlockPool::FreeList() const {
  std::vector<BlockId> list;
  for (BlockId i = At(kNullBlock).next_free; i != kNullBlock; i = At(i).next_free) {
    list.push_back(i);
  }
  return list;
}

void BlockPool::InsertFree(BlockId id, BlockId before) {
  Block& block = At(id);
  block.next_free = before;
  block.prev_free = At(before).prev_free;
  At(block.prev_free).next_free = id;
  At(before).prev_free = id;
  ++num_free_;
}

void BlockPool::RemoveFree(BlockId id) {
  const Block& block = At(id);
  At(block.prev_free).next_free = block.next_free;
  At(block.next_free).prev_free = block.prev_free;
  --num_free_;
}

}  // namespace tandem
