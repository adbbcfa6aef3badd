#include "engine_core/kv_cache/kv_cache_manager.h"

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

  // Once nobody holds them, they count as needed.
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
  cache.ForgetBeyond(kA, 6);
  CHECK(cache.FindCachedPrefix(sequence.hashes, 16).size() == 1);
  CHECK(cache.NumRegisteredTokens(kA) == 4);
  const BlockId tail = cache.BlockTable(kA).back();
  cache.Free(kA);
  CHECK(cache.pool().FreeList().front() == tail);
}

}  // namespace
}  // namespace tandem
