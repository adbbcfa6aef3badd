#include "engine_core/kv_cache/prefix_map.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace tandem {

PrefixMap::PrefixMap(int32_t num_blocks)
    : entries_(std::bit_ceil(2 * static_cast<size_t>(num_blocks))), mask_(entries_.size() - 1) {}

BlockId* PrefixMap::Find(const BlockHash& hash) {
  for (size_t i = Home(hash); entries_[i].block != BlockId{}; i = (i + 1) & mask_) {
    if (entries_[i].hash == hash) return &entries_[i].block;
  }
  return nullptr;
}

void PrefixMap::Insert(const BlockHash& hash, BlockId block) {
  CHECK(block != BlockId{} && static_cast<size_t>(size_) * 2 < entries_.size()) << size_;
  size_t i = Home(hash);
  while (entries_[i].block != BlockId{}) i = (i + 1) & mask_;
  entries_[i] = {hash, block};
  ++size_;
}

void PrefixMap::Erase(const BlockHash& hash) {
  size_t hole = Home(hash);
  while (!(entries_[hole].hash == hash)) {
    CHECK(entries_[hole].block != BlockId{}) << "not in the map: " << hash.ToHex();
    hole = (hole + 1) & mask_;
  }
  // An entry after the hole moves into it unless the hole lies before the entry's home.
  for (size_t i = (hole + 1) & mask_; entries_[i].block != BlockId{}; i = (i + 1) & mask_) {
    const size_t distance_home = (i - Home(entries_[i].hash)) & mask_;
    const size_t distance_hole = (i - hole) & mask_;
    if (distance_home >= distance_hole) {
      entries_[hole] = entries_[i];
      hole = i;
    }
  }
  entries_[hole] = {};
  --size_;
}

void PrefixMap::Clear() {
  std::fill(entries_.begin(), entries_.end(), Entry{});
  size_ = 0;
}

}  // namespace tandem
