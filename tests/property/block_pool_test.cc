// The pool compared with a naive one: a deque of free blocks and lists in maps.

#include "engine_core/kv_cache/block_pool.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

class NaivePool {
 public:
  explicit NaivePool(int num_blocks) {
    for (int i = 1; i < num_blocks; ++i) free_.push_back(i);
  }

  std::vector<int> Allocate(size_t count) {
    std::vector<int> taken;
    for (size_t i = 0; i < count; ++i) {
      const int block = free_.front();
      free_.pop_front();
      Unregister(block);
      holders_[block] = 1;
      taken.push_back(block);
    }
    return taken;
  }
  void Hold(int block) {
    if (holders_[block]++ == 0) free_.erase(std::find(free_.begin(), free_.end(), block));
  }
  void Free(const std::vector<int>& table) {
    std::vector<int> back, front;
    for (auto block = table.rbegin(); block != table.rend(); ++block) {
      if (--holders_[*block] > 0) continue;
      (hash_of_.contains(*block) ? back : front).push_back(*block);
    }
    free_.insert(free_.end(), back.begin(), back.end());
    free_.insert(free_.begin(), front.begin(), front.end());
  }
  void Register(int block, int hash) {
    hash_of_[block] = hash;
    blocks_of_[hash].push_back(block);
  }
  void Unregister(int block) {
    const auto hash = hash_of_.find(block);
    if (hash == hash_of_.end()) return;
    std::erase(blocks_of_[hash->second], block);
    hash_of_.erase(hash);
  }
  void Forget(int hash) {
    for (int block : blocks_of_[hash]) {
      hash_of_.erase(block);
      const auto free = std::find(free_.begin(), free_.end(), block);
      if (free == free_.end()) continue;
      free_.erase(free);
      free_.push_front(block);
    }
    blocks_of_[hash].clear();
  }
  int Find(int hash) { return blocks_of_[hash].empty() ? 0 : blocks_of_[hash].front(); }
  bool IsRegistered(int block) const { return hash_of_.contains(block); }
  const std::deque<int>& free_list() const { return free_; }

 private:
  std::deque<int> free_;
  std::map<int, int> holders_;
  std::map<int, int> hash_of_;
  std::map<int, std::vector<int>> blocks_of_;
};

// Few distinct values of the byte that indexes the table, so that positions collide.
BlockHash HashOf(int hash) {
  BlockHash result;
  result.bytes[24] = static_cast<uint8_t>(hash % 3);
  result.bytes[31] = static_cast<uint8_t>(hash);
  return result;
}

TEST_CASE("Block pool: random allocations, hits, registrations and frees equal the naive pool") {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    const int num_blocks = 2 + static_cast<int>(below(30));
    BlockPool pool(num_blocks, nullptr);
    NaivePool naive(num_blocks);
    std::vector<std::vector<int>> tables;
    for (int step = 0; step < 300; ++step) {
      const size_t what = below(11);
      if (what < 3 && pool.num_free() > 0) {
        std::vector<BlockId> blocks(1 + below(static_cast<size_t>(pool.num_free())));
        pool.Allocate(blocks);
        tables.push_back(naive.Allocate(blocks.size()));
        for (size_t i = 0; i < blocks.size(); ++i) CHECK(Index(blocks[i]) == tables.back()[i]);
      } else if (what < 5 && !tables.empty()) {
        const auto table = tables.begin() + static_cast<ptrdiff_t>(below(tables.size()));
        std::vector<BlockId> blocks;
        for (int block : *table) blocks.push_back(BlockId{block});
        pool.Free(blocks);
        naive.Free(*table);
        tables.erase(table);
      } else if (what < 7 && !tables.empty()) {
        const auto& table = tables[below(tables.size())];
        const int block = table[below(table.size())];
        const int hash = static_cast<int>(below(12));
        if (naive.IsRegistered(block)) {
          if (below(4) == 0) {
            pool.Unregister(BlockId{block});
            naive.Unregister(block);
          }
        } else {
          pool.Register(BlockId{block}, HashOf(hash));
          naive.Register(block, hash);
        }
      } else if (what == 7) {
        const int hash = static_cast<int>(below(12));
        pool.Forget(HashOf(hash));
        naive.Forget(hash);
      } else {
        const int hash = static_cast<int>(below(12));
        const int found = naive.Find(hash);
        REQUIRE(Index(pool.Find(HashOf(hash)).value_or(BlockId{0})) == found);
        if (found != 0 && below(2) == 0) {
          pool.Hold(BlockId{found});
          naive.Hold(found);
          tables.push_back({found});
        }
      }
      std::vector<int> free_list;
      for (BlockId block : pool.FreeList()) free_list.push_back(Index(block));
      REQUIRE(std::equal(free_list.begin(), free_list.end(), naive.free_list().begin(),
                         naive.free_list().end()));
      REQUIRE(pool.num_free() == static_cast<int>(free_list.size()));
    }
  }
}

}  // namespace
}  // namespace tandem
