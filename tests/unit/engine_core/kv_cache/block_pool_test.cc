#include "engine_core/kv_cache/block_pool.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

BlockHash HashOf(uint8_t byte) {
  BlockHash hash;
  hash.bytes.fill(byte);
  return hash;
}

std::vector<int> FreeList(const BlockPool& pool) {
  std::vector<int> list;
  for (BlockId block : pool.FreeList()) list.push_back(Index(block));
  return list;
}

std::vector<BlockId> Take(BlockPool* pool, size_t count) {
  std::vector<BlockId> blocks(count);
  pool->Allocate(blocks);
  return blocks;
}

TEST_CASE("B1 B2: the null block is never allocated, the others in id order, and usage") {
  BlockPool pool(5, nullptr);
  CHECK(FreeList(pool) == std::vector<int>{1, 2, 3, 4});
  CHECK(pool.Usage() == 0);
  CHECK(Take(&pool, 3) == std::vector<BlockId>{BlockId{1}, BlockId{2}, BlockId{3}});
  CHECK(pool.Usage() == 0.75);
  CHECK(FreeList(pool) == std::vector<int>{4});
}

TEST_CASE("B3: hashed blocks go to the back tail first, others to the front, the tail foremost") {
  BlockPool pool(8, nullptr);
  const std::vector<BlockId> table = Take(&pool, 5);
  pool.Register(table[0], HashOf(1));
  pool.Register(table[1], HashOf(2));
  pool.Register(table[2], HashOf(3));
  pool.Free(table);
  CHECK(FreeList(pool) == std::vector<int>{5, 4, 6, 7, 3, 2, 1});
}

TEST_CASE("B3: null blocks of a table are skipped") {
  BlockPool pool(4, nullptr);
  const std::vector<BlockId> taken = Take(&pool, 2);
  pool.Free(std::vector<BlockId>{taken[0], BlockId{0}, taken[1]});
  CHECK(FreeList(pool) == std::vector<int>{2, 1, 3});
}

TEST_CASE("B4: a hit takes a free block off the list and counts its holders") {
  BlockPool pool(5, nullptr);
  const std::vector<BlockId> table = Take(&pool, 2);
  pool.Register(table[0], HashOf(1));
  pool.Free(table);
  REQUIRE(pool.Find(HashOf(1)) == table[0]);
  pool.Hold(table[0]);
  pool.Hold(table[0]);
  CHECK(pool.num_holders(table[0]) == 2);
  CHECK(FreeList(pool) == std::vector<int>{2, 3, 4});
  pool.Free(std::vector<BlockId>{table[0]});
  CHECK_FALSE(pool.is_free(table[0]));
  pool.Free(std::vector<BlockId>{table[0]});
  CHECK(FreeList(pool) == std::vector<int>{2, 3, 4, 1});
}

TEST_CASE("B5: reallocation evicts the hash with an event, even when a duplicate keeps it alive") {
  std::vector<KvCacheEvent> events;
  BlockPool pool(3, &events);
  const std::vector<BlockId> table = Take(&pool, 2);
  pool.Register(table[0], HashOf(1));
  pool.Register(table[1], HashOf(1));
  pool.Free(table);
  CHECK(FreeList(pool) == std::vector<int>{2, 1});
  Take(&pool, 1);
  REQUIRE(events.size() == 1);
  CHECK(std::get<BlockRemoved>(events[0]).block_hash == HashOf(1));
  CHECK(pool.Find(HashOf(1)) == BlockId{1});
  CHECK(pool.num_cached_hashes() == 1);
  Take(&pool, 1);
  CHECK(events.size() == 2);
  CHECK_FALSE(pool.Find(HashOf(1)).has_value());
  CHECK(pool.num_cached_hashes() == 0);
}

TEST_CASE("B6: among duplicates the one registered first is found, then the next") {
  BlockPool pool(5, nullptr);
  const std::vector<BlockId> table = Take(&pool, 3);
  pool.Register(table[2], HashOf(7));
  pool.Register(table[0], HashOf(7));
  pool.Register(table[1], HashOf(7));
  CHECK(pool.Find(HashOf(7)) == table[2]);
  pool.Unregister(table[0]);  // one in the middle
  pool.Unregister(table[2]);  // the first
  CHECK(pool.Find(HashOf(7)) == table[1]);
  pool.Register(table[2], HashOf(7));
  CHECK(pool.Find(HashOf(7)) == table[1]);
}

TEST_CASE("B13: clearing forgets all hashes, keeps the order of the free list, makes one event") {
  std::vector<KvCacheEvent> events;
  BlockPool pool(4, &events);
  const std::vector<BlockId> table = Take(&pool, 3);
  for (uint8_t i = 0; i < 3; ++i) pool.Register(table[i], HashOf(i));
  pool.Free(table);
  pool.Clear();
  CHECK(FreeList(pool) == std::vector<int>{3, 2, 1});
  CHECK(pool.num_cached_hashes() == 0);
  CHECK(events.size() == 1);
  Take(&pool, 3);
  CHECK(events.size() == 1);
}

}  // namespace
}  // namespace tandem
