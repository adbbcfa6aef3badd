#pragma once

// Hashes of blocks in the order of their last use. Thread: one.

#include <list>
#include <unordered_map>

#include "engine_core/kv_cache/block_hash.h"

namespace tandem {

class BlockLru {
 public:
  bool Has(const BlockHash& hash) const { return places_.contains(hash); }
  // It is used now. False: it is not there.
  bool Touch(const BlockHash& hash) {
    const auto found = places_.find(hash);
    if (found == places_.end()) return false;
    order_.splice(order_.end(), order_, found->second);
    return true;
  }
  void Add(const BlockHash& hash) {
    if (!Touch(hash)) places_[hash] = order_.insert(order_.end(), hash);
  }
  // As the least recently used one.
  void AddOldest(const BlockHash& hash) {
    if (!Has(hash)) places_[hash] = order_.insert(order_.begin(), hash);
  }
  void Erase(const BlockHash& hash) {
    const auto found = places_.find(hash);
    if (found == places_.end()) return;
    order_.erase(found->second);
    places_.erase(found);
  }
  void Clear() {
    order_.clear();
    places_.clear();
  }
  size_t size() const { return places_.size(); }
  // REQUIRES: size() > 0.
  const BlockHash& oldest() const { return order_.front(); }
  const std::list<BlockHash>& order() const { return order_; }

  struct Bits {
    size_t operator()(const BlockHash& hash) const { return hash.Bits(); }
  };

 private:
  std::list<BlockHash> order_;
  std::unordered_map<BlockHash, std::list<BlockHash>::iterator, Bits> places_;
};

}  // namespace tandem
