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
  config.groups = LayerGroups::OfWindow(6);
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
  config.groups = LayerGroups::OfWindow(2147483647);
  CHECK(MaxHeldBlocks(config) == 10);
  config.groups = {};
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

// A full group and two with a window of 6, in blocks of 4 tokens; steps of at most 8 tokens.
KvCacheConfig GroupConfig() {
  KvCacheConfig config = WindowConfig();
  config.groups = {.num_full = 1, .num_local = 2, .window = 6};
  config.num_blocks = 1 + MaxHeldBlocks(config);
  config.enable_events = true;
  return config;
}

TEST_CASE("groups: at a place of a table stand the blocks of all groups, the full ones first") {
  const KvCacheConfig config = GroupConfig();
  CHECK(MaxHeldBlocks(config) == 10 + 2 * 5);
  KvCacheManager cache(config);
  const Sequence sequence = MakeSequence(&cache, 40);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(8)));
  CHECK(cache.BlockTable(kA).size() == 2 * 3);
  CHECK(cache.NumTokensIn(cache.BlockTable(kA)) == 8);
  CHECK(NumHeld(cache) == 6);
  // Steps of 8 tokens and a window before them have at most 5 local places.
  CHECK(cache.MaxHeldBlocksFor(0) == 0);
  CHECK(cache.MaxHeldBlocksFor(9) == 3 * 3);
  CHECK(cache.MaxHeldBlocksFor(21) == 6 + 2 * 5);
  CHECK(cache.MaxHeldBlocksFor(1000) == MaxHeldBlocks(config));
  // Token 17 sees 12 .. 17: the local blocks of the first three places go.
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 8), 16));
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 16), 17));
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 17), 18));
  const std::span<const BlockId> table = cache.BlockTable(kA);
  REQUIRE(table.size() == 5 * 3);
  for (size_t place = 0; place < 5; ++place) {
    CAPTURE(place);
    CHECK(table[place * 3] != kNullBlock);
    CHECK((table[place * 3 + 1] == kNullBlock) == (place < 3));
    CHECK((table[place * 3 + 2] == kNullBlock) == (place < 3));
  }
  CHECK(NumHeld(cache) == 5 + 2 * 2);
  cache.Free(kA);
  CHECK(NumHeld(cache) == 0);
}

TEST_CASE("groups: a request that reaches the longest length never holds more than its bound") {
  KvCacheConfig config = GroupConfig();
  KvCacheManager cache(config);
  const Sequence sequence = MakeSequence(&cache, 40);
  Admission admission = Plain(8);
  admission.num_tokens_to_fit = 40;
  REQUIRE(cache.TryAdmit(kA, sequence.view(), admission));
  for (int32_t computed = 8; computed < 40; computed += 8) {
    REQUIRE(cache.TryGrow(kA, Computed(sequence, computed), computed + 8));
  }
  // The full group has 10, the others the two of the window and those of the step.
  CHECK(NumHeld(cache) == 10 + 2 * 4);
  config.num_blocks -= 1;
  KvCacheManager small(config);
  CHECK_FALSE(small.TryAdmit(kA, sequence.view(), admission));
}

TEST_CASE("groups: a hit needs all blocks of full groups, of the others those of the window") {
  KvCacheManager cache(GroupConfig());
  const Sequence sequence = MakeSequence(&cache, 40);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(8)));
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 8), 16));
  cache.Free(kA);
  const auto num_found = [&] {
    return cache.NumTokensIn(cache.FindCachedPrefix(sequence.hashes, 39));
  };
  REQUIRE(num_found() == 16);
  const auto found = cache.FindCachedPrefix(sequence.hashes, 39);
  // Token 16 sees 11 .. 16, so the third place and the fourth.
  const std::vector<BlockId> table(found.begin(), found.end());
  for (size_t place = 0; place < 4; ++place) {
    CHECK(table[place * 3] != kNullBlock);
    CHECK((table[place * 3 + 1] != kNullBlock) == (place >= 2));
    CHECK((table[place * 3 + 2] != kNullBlock) == (place >= 2));
  }
  // It can be admitted with that, and gives the rest of the window back in turn.
  Admission admission = Plain(20);
  admission.cached_prefix = table;
  REQUIRE(cache.TryAdmit(kB, sequence.view(), admission));
  CHECK(NumHeld(cache) == 4 + 2 * 2 + 3);
  REQUIRE(cache.TryGrow(kB, Computed(sequence, 20), 21));
  CHECK(cache.BlockTable(kB)[2 * 3 + 1] == kNullBlock);
  CHECK(cache.BlockTable(kB)[3 * 3 + 1] != kNullBlock);
  cache.Free(kB);
}

TEST_CASE("groups: what a local group has lost ends a hit where the window is still there") {
  KvCacheConfig config = GroupConfig();
  config.groups.num_local = 1;
  config.num_blocks = 100;
  KvCacheManager cache(config);
  const Sequence sequence = MakeSequence(&cache, 40);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(40)));
  const std::vector<BlockId> table(cache.BlockTable(kA).begin(), cache.BlockTable(kA).end());
  const auto num_found = [&] {
    return cache.NumTokensIn(cache.FindCachedPrefix(sequence.hashes, 40));
  };
  CHECK(num_found() == 40);
  auto& pool = const_cast<BlockPool&>(cache.pool());
  pool.Unregister(table[8 * 2 + 1]);  // a hit after nine places or ten needs it
  CHECK(num_found() == 8 * 4);
  pool.Unregister(table[7 * 2]);
  CHECK(num_found() == 7 * 4);
  pool.Unregister(table[1 * 2 + 1]);
  CHECK(num_found() == 7 * 4);
  for (size_t place = 2; place < 8; ++place) pool.Unregister(table[place * 2 + 1]);
  CHECK(num_found() == 1 * 4);
}

TEST_CASE("groups: chunks are given back as a whole, and a hit may end where one begins") {
  KvCacheConfig config = GroupConfig();
  config.groups = {.num_full = 1, .num_local = 1, .chunk = 8};
  config.num_blocks = 100;
  KvCacheManager cache(config);
  const Sequence sequence = MakeSequence(&cache, 40);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(8)));
  const auto num_null = [&] { return std::ranges::count(cache.BlockTable(kA), kNullBlock); };
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 7), 15));
  CHECK(num_null() == 0);
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 8), 16));
  CHECK(num_null() == 2);
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 15), 17));
  CHECK(num_null() == 2);
  const std::vector<BlockId> table(cache.BlockTable(kA).begin(), cache.BlockTable(kA).end());
  auto& pool = const_cast<BlockPool&>(cache.pool());
  // Token 16 begins a chunk, so it sees nothing of the local group.
  pool.Unregister(table[3 * 2 + 1]);
  CHECK(cache.NumTokensIn(cache.FindCachedPrefix(sequence.hashes, 16)) == 16);
  // Token 12 sees 8 .. 12.
  CHECK(cache.NumTokensIn(cache.FindCachedPrefix(sequence.hashes, 15)) == 12);
  pool.Unregister(table[2 * 2 + 1]);
  CHECK(cache.NumTokensIn(cache.FindCachedPrefix(sequence.hashes, 15)) == 8);
}

TEST_CASE("groups: each group has its events, and those of the pool name the group") {
  KvCacheManager cache(GroupConfig());
  const Sequence sequence = MakeSequence(&cache, 8);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(8)));
  const std::vector<KvCacheEvent> stored = cache.TakeEvents();
  REQUIRE(stored.size() == 3);
  for (int32_t group = 0; group < 3; ++group) {
    const auto& event = std::get<BlockStored>(stored[static_cast<size_t>(group)]);
    CHECK(event.group == group);
    CHECK(event.block_hashes == sequence.hashes);
  }
  cache.Forget({sequence.hashes.data(), 1});
  const std::vector<KvCacheEvent> removed = cache.TakeEvents();
  REQUIRE(removed.size() == 3);
  for (int32_t group = 0; group < 3; ++group) {
    const auto& event = std::get<BlockRemoved>(removed[static_cast<size_t>(group)]);
    CHECK(event.group == group);
    CHECK(event.block_hash == sequence.hashes[0]);
  }
}

TEST_CASE("groups: a checkpoint has the tables and what can be found of each group") {
  KvCacheManager cache(GroupConfig());
  const Sequence sequence = MakeSequence(&cache, 40);
  REQUIRE(cache.TryAdmit(kA, sequence.view(), Plain(8)));
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 8), 16));
  REQUIRE(cache.TryGrow(kA, Computed(sequence, 16), 18));
  std::vector<char> bytes(10'000);
  ByteWriter out(bytes);
  cache.Save(&out);
  REQUIRE(out.fits());
  KvCacheManager loaded(GroupConfig());
  ByteReader in({bytes.data(), out.size()});
  REQUIRE(loaded.Load(&in).ok());
  CHECK(std::ranges::equal(loaded.BlockTable(kA), cache.BlockTable(kA)));
  CHECK(loaded.pool().FreeList() == cache.pool().FreeList());
  const auto found = cache.FindCachedPrefix(sequence.hashes, 39);
  CHECK(cache.NumTokensIn(found) == 16);
  CHECK(std::ranges::equal(loaded.FindCachedPrefix(sequence.hashes, 39), found));
  REQUIRE(loaded.TryGrow(kA, Computed(sequence, 18), 24));
  loaded.Free(kA);
  CHECK(NumHeld(loaded) == 0);
}

}  // namespace
}  // namespace tandem
