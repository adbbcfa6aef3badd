#include "engine_core/kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <numeric>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

KvCacheConfig SmallConfig() {
  KvCacheConfig config;
  config.num_blocks = 11;
  config.block_size = 4;
  config.max_num_seqs = 4;
  config.max_model_len = 40;
  return config;
}

struct Sequence {
  std::vector<TokenId> tokens;
  std::vector<BlockHash> hashes;
  SequenceView view() const { return {tokens, hashes, {}}; }
};

Sequence MakeSequence(KvCacheManager* cache, int length) {
  Sequence sequence;
  sequence.tokens.resize(static_cast<size_t>(length));
  std::iota(sequence.tokens.begin(), sequence.tokens.end(), 0);
  cache->ExtendHashes(sequence.tokens, {}, &sequence.hashes);
  return sequence;
}

Admission Plain(int32_t num_tokens) {
  Admission admission;
  admission.num_tokens = num_tokens;
  return admission;
}

constexpr RequestSlot kA{0}, kB{1}, kC{2};

TEST_CASE("B7: full blocks are findable as soon as their tokens have room") {
  KvCacheManager cache(SmallConfig());
  const Sequence sequence = MakeSequence(&cache, 11);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(6)));
  CHECK(cache.FindCachedPrefix(sequence.hashes, 10).size() == 1);
  REQUIRE(cache.TryGrow(kA, sequence.view(), 11));
  CHECK(cache.FindCachedPrefix(sequence.hashes, 10).size() == 2);
  CHECK(cache.NumRegisteredTokens(kA) == 8);
}

TEST_CASE("B8: the lookup stops at the first miss and at its limit") {
  KvCacheManager cache(SmallConfig());
  const Sequence sequence = MakeSequence(&cache, 16);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(16)));
  CHECK(cache.FindCachedPrefix(sequence.hashes, 16).size() == 4);
  CHECK(cache.FindCachedPrefix(sequence.hashes, 15).size() == 3);
  std::vector<BlockHash> other = sequence.hashes;
  other[1].bytes[5] ^= 1;
  CHECK(cache.FindCachedPrefix(other, 16).size() == 1);
}

TEST_CASE("B9: with caching off nothing is hashed or registered") {
  KvCacheConfig config = SmallConfig();
  config.enable_prefix_caching = false;
  KvCacheManager cache(config);
  const Sequence sequence = MakeSequence(&cache, 16);
  CHECK(sequence.hashes.empty());
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(16)));
  CHECK(cache.NumRegisteredTokens(kA) == 0);
  CHECK(cache.pool().num_cached_hashes() == 0);
}

TEST_CASE("B11: an admission needs room for the whole sequence, free hit blocks included") {
  KvCacheManager cache(SmallConfig());  // 10 blocks
  const Sequence shared = MakeSequence(&cache, 17);
  REQUIRE(cache.TryAdmit(kA, shared.view(), Plain(17)));  // 5 blocks
  Admission too_long = Plain(4);
  too_long.num_tokens_to_fit = 24;
  CHECK_FALSE(cache.TryAdmit(kB, {}, too_long));
  CHECK(cache.pool().num_free() == 5);
  too_long.num_tokens_to_fit = 20;
  CHECK(cache.TryAdmit(kB, {}, too_long));  // takes only what it needs now
  CHECK(cache.BlockTable(kB).size() == 1);

  // The 4 hit blocks are held by A: only one more is needed of the 4 that are free.
  Admission hit = Plain(17);
  hit.cached_prefix = cache.FindCachedPrefix(shared.hashes, 16);
  REQUIRE(hit.cached_prefix.size() == 4);
  REQUIRE(cache.TryAdmit(kC, shared.view(), hit));
  CHECK(cache.pool().num_free() == 3);
  CHECK(cache.pool().num_holders(cache.BlockTable(kC)[0]) == 2);

  // Once they are free, they count as needed.
  cache.Free(kA);
  cache.Free(kC);
  REQUIRE(cache.TryGrow(kB, {}, 20));  // 5 free: 4 cached, 1 not
  hit.cached_prefix = cache.FindCachedPrefix(shared.hashes, 16);
  CHECK(cache.TryAdmit(kA, shared.view(), hit));
  CHECK(cache.pool().num_free() == 0);
  cache.Free(kA);
  REQUIRE(cache.TryGrow(kB, {}, 24));
  hit.cached_prefix = cache.FindCachedPrefix(shared.hashes, 16);
  REQUIRE(hit.cached_prefix.size() == 4);
  CHECK_FALSE(cache.TryAdmit(kA, shared.view(), hit));
}

TEST_CASE("B12: the watermark is a share of all blocks and only counts when asked for") {
  KvCacheConfig config = SmallConfig();
  config.watermark = 0.2;  // int(2.2)
  KvCacheManager cache(config);
  Admission admission = Plain(36);
  admission.keep_watermark = true;
  CHECK_FALSE(cache.TryAdmit(kA, {}, admission));
  admission.num_tokens = 32;
  CHECK(cache.TryAdmit(kA, {}, admission));
  CHECK(cache.TryAdmit(kB, {}, Plain(8)));
}

TEST_CASE("B13: a reset is refused while any block is held") {
  KvCacheManager cache(SmallConfig());
  const Sequence sequence = MakeSequence(&cache, 16);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(16)));
  CHECK_FALSE(cache.TryReset());
  CHECK(cache.pool().num_cached_hashes() == 4);
  cache.Free(kA);
  CHECK(cache.TryReset());
  CHECK(cache.FindCachedPrefix(sequence.hashes, 16).empty());
}

TEST_CASE("B15: room ends at max_model_len") {
  KvCacheConfig config = SmallConfig();
  config.max_model_len = 10;
  KvCacheManager cache(config);
  REQUIRE(cache.TryAdmit(kA, {}, Plain(25)));
  CHECK(cache.BlockTable(kA).size() == 3);
}

TEST_CASE("R7: blocks that will not be computed are forgotten, computed ones stay findable") {
  KvCacheManager cache(SmallConfig());
  const Sequence sequence = MakeSequence(&cache, 16);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(6)));
  REQUIRE(cache.TryGrow(kA, sequence.view(), 16));
  cache.ForgetBeyond(kA, sequence.view(), 6);
  CHECK(cache.FindCachedPrefix(sequence.hashes, 16).size() == 1);
  CHECK(cache.NumRegisteredTokens(kA) == 4);
  const BlockId tail = cache.BlockTable(kA).back();
  cache.Free(kA);
  CHECK(cache.pool().FreeList().front() == tail);
}

// Blocks of 4 tokens, a window of 6, steps of at most 8 tokens.
KvCacheConfig WindowConfig() {
  KvCacheConfig config = SmallConfig();
  config.sliding_window = 6;
  config.max_num_batched_tokens = 8;
  return config;
}

SequenceView Computed(const Sequence& sequence, int32_t num_computed_tokens) {
  SequenceView view = sequence.view();
  view.num_computed_tokens = num_computed_tokens;
  return view;
}

int NumHeld(const KvCacheManager& cache) {
  return cache.pool().num_blocks() - 1 - cache.pool().num_free();
}

TEST_CASE(
    "B14: what one request can hold is its window, a step and the block the window begins in") {
  KvCacheConfig config = WindowConfig();
  CHECK(MaxHeldBlocks(config) == 5);  // 5 + 8 tokens are 4 blocks, and one more
  config.max_num_batched_tokens = 1000;
  CHECK(MaxHeldBlocks(config) == 10);
  config.sliding_window = 2147483647;
  CHECK(MaxHeldBlocks(config) == 10);
  config.sliding_window = 0;
  CHECK(MaxHeldBlocks(config) == 10);
}

TEST_CASE("B14: blocks wholly before the next token's window are freed, the others stay") {
  KvCacheManager cache(WindowConfig());
  const Sequence sequence = MakeSequence(&cache, 40);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(8)));
  const BlockId first = cache.BlockTable(kA)[0];
  // Token 8 sees 3 .. 8: the first block still.
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 8), 9));
  CHECK(cache.BlockTable(kA)[0] == first);
  // Token 9 sees 4 .. 9.
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 9), 10));
  CHECK(cache.BlockTable(kA).size() == 3);
  CHECK(cache.BlockTable(kA)[0] == kNullBlock);
  CHECK(cache.pool().FreeList().back() == first);  // it has a hash
  CHECK(cache.pool().Find(sequence.hashes[0]) == first);
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 10), 17));
  // Two blocks at once: the later one is freed first, as at the end of a request (B3).
  const BlockId second = cache.BlockTable(kA)[1], third = cache.BlockTable(kA)[2];
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 17), 25));
  const std::vector<BlockId> free = cache.pool().FreeList();
  REQUIRE(free.size() == 10u - 4u);
  CHECK(free[free.size() - 2] == third);
  CHECK(free.back() == second);
  cache.Free(kA);
  CHECK(NumHeld(cache) == 0);
}

TEST_CASE("B14: a request of any length never holds more than its bound") {
  KvCacheConfig config = WindowConfig();
  config.num_blocks = 1 + MaxHeldBlocks(config);
  config.max_model_len = 400;
  KvCacheManager cache(config);
  const Sequence sequence = MakeSequence(&cache, 400);
  Admission admission = Plain(8);
  admission.num_tokens_to_fit = 400;
  REQUIRE(cache.TryAdmit(kA, sequence.view(), admission));
  for (int32_t done = 8; done < 400; done += 8) {
    REQUIRE(cache.TryGrow(kA, Computed(sequence, done), done + 8));
    CHECK(NumHeld(cache) <= 4);
  }
  CHECK(cache.BlockTable(kA).size() == 100);
  CHECK(cache.NumRegisteredTokens(kA) == 400);
}

TEST_CASE("B14, B11: an admission needs room for what the request can hold, not for all of it") {
  KvCacheManager cache(WindowConfig());  // 10 blocks
  REQUIRE(cache.TryAdmit(kA, {}, Plain(20)));
  Admission admission = Plain(4);
  admission.num_tokens_to_fit = 40;
  CHECK(cache.TryAdmit(kB, {}, admission));  // 5 of the 5 that are free
  CHECK_FALSE(cache.TryAdmit(kC, {}, admission));
}

TEST_CASE("B14: a hit needs the blocks that the next token sees, the earlier ones are null") {
  KvCacheManager cache(WindowConfig());
  const Sequence sequence = MakeSequence(&cache, 24);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(8)));
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 8), 16));
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 16), 24));
  cache.Free(kA);
  std::vector<BlockHash> hashes = sequence.hashes;
  const auto found = cache.FindCachedPrefix(hashes, 23);
  REQUIRE(found.size() == 5);
  CHECK(std::count(found.begin(), found.end(), kNullBlock) == 3);
  CHECK(found[3] == cache.pool().Find(hashes[3]));
  CHECK(found[4] == cache.pool().Find(hashes[4]));

  // A gap after the window shortens the hit, one inside moves it, one before it does nothing.
  hashes[4].bytes[0] ^= 1;
  CHECK(cache.FindCachedPrefix(hashes, 23).size() == 4);
  hashes[2].bytes[0] ^= 1;
  CHECK(cache.FindCachedPrefix(hashes, 23).size() == 2);  // reaches the start
  hashes[0].bytes[0] ^= 1;
  CHECK(cache.FindCachedPrefix(hashes, 23).empty());
  hashes = sequence.hashes;
  hashes[0].bytes[0] ^= 1;
  CHECK(cache.FindCachedPrefix(hashes, 23).size() == 5);
}

TEST_CASE("B14: an admission on a hit holds the window's blocks only and goes on from there") {
  KvCacheManager cache(WindowConfig());
  const Sequence sequence = MakeSequence(&cache, 40);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(8)));
  for (int32_t done = 8; done < 24; done += 8) {
    REQUIRE(cache.TryGrow(kA, Computed(sequence, done), done + 8));
  }
  cache.Free(kA);
  Admission admission = Plain(28);
  admission.cached_prefix = cache.FindCachedPrefix(sequence.hashes, 27);
  REQUIRE(admission.cached_prefix.size() == 6);
  REQUIRE(cache.TryAdmit(kB, sequence.view(), admission));
  CHECK(NumHeld(cache) == 3);
  CHECK(cache.NumRegisteredTokens(kB) == 28);
  REQUIRE(cache.TryGrow(kB, Computed(sequence, 28), 29));
  CHECK(NumHeld(cache) == 3);  // one freed, one allocated
  cache.Free(kB);
  CHECK(NumHeld(cache) == 0);
}

TEST_CASE("B14: blocks that a failed request had freed are forgotten too, duplicates included") {
  KvCacheManager cache(WindowConfig());
  const Sequence sequence = MakeSequence(&cache, 16);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(8)));
  REQUIRE(cache.TryAdmit(kB, sequence.view(), Plain(8)));  // the same content in its own blocks
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 12), 16));
  REQUIRE(cache.BlockTable(kA)[0] == kNullBlock);
  cache.ForgetBeyond(kA, sequence.view(), 0);
  CHECK_FALSE(cache.pool().Find(sequence.hashes[0]));
  CHECK(cache.NumRegisteredTokens(kA) == 0);
}

}  // namespace
}  // namespace tandem
