#include "engine_core/kv_cache/block_residency.h"

#include "engine_core/kv_cache/kv_cache_manager.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr BlockId kA{1}, kB{2};

TEST_CASE("Residency: a life lasts from one allocation to the next") {
  BlockResidency residency(4, 1.0);
  residency.SetNow(10);
  residency.Allocated(kA);
  CHECK(residency.TakeEvictions().empty());
  residency.SetNow(13);
  residency.Allocated(kB);
  residency.SetNow(15);
  residency.Allocated(kA);
  const auto evictions = residency.TakeEvictions();
  REQUIRE(evictions.size() == 1);
  CHECK(evictions[0].lifetime_s == 5);
  CHECK(evictions[0].idle_s == 5);
  CHECK(evictions[0].reuse_gaps_s.empty());
  CHECK(residency.TakeEvictions().empty());
}

TEST_CASE("Residency: idle time is since the last hit, gaps are those between the last four") {
  BlockResidency residency(4, 1.0);
  residency.Allocated(kA);
  for (const double now : {1.0, 3.0, 6.0, 10.0, 15.0, 21.0}) {
    residency.SetNow(now);
    residency.Hit(kA);
  }
  residency.SetNow(30);
  residency.Allocated(kA);
  auto evictions = residency.TakeEvictions();
  REQUIRE(evictions.size() == 1);
  CHECK(evictions[0].lifetime_s == 30);
  CHECK(evictions[0].idle_s == 9);
  CHECK(evictions[0].reuse_gaps_s == std::vector<double>{4, 5, 6});

  residency.SetNow(31);
  residency.Hit(kA);
  residency.SetNow(33);
  residency.Hit(kA);
  residency.Allocated(kA);
  evictions = residency.TakeEvictions();
  REQUIRE(evictions.size() == 1);
  CHECK(evictions[0].lifetime_s == 3);
  CHECK(evictions[0].idle_s == 0);
  CHECK(evictions[0].reuse_gaps_s == std::vector<double>{2});
}

TEST_CASE("Residency: clearing the cache ends lives without reporting them") {
  BlockResidency residency(4, 1.0);
  residency.Allocated(kA);
  residency.Clear();
  residency.Allocated(kA);
  CHECK(residency.TakeEvictions().empty());
}

TEST_CASE("Residency: the sample is the share asked for and the same each time") {
  const auto num_watched = [](double sample) {
    BlockResidency residency(101, sample);
    size_t count = 0;
    for (int i = 0; i < 100'000; ++i) {
      residency.Allocated(BlockId{1 + i % 100});
      count += residency.TakeEvictions().size();
    }
    return count;
  };
  CHECK(num_watched(0) == 0);
  CHECK(num_watched(1) == 100'000 - 100);
  CHECK(num_watched(0.1) > 9'500);
  CHECK(num_watched(0.1) < 10'500);
  CHECK(num_watched(0.1) == num_watched(0.1));
}

TEST_CASE("Residency: the manager reports hits and reallocations") {
  KvCacheConfig config;
  config.num_blocks = 3;
  config.block_size = 2;
  config.max_num_seqs = 2;
  config.max_model_len = 4;
  config.residency_sample = 1.0;
  KvCacheManager cache(config);
  constexpr RequestSlot kSlot{0};
  const std::vector<TokenId> tokens = {1, 2, 3};
  std::vector<BlockHash> hashes;
  cache.ExtendHashes(tokens, {}, &hashes);
  Admission admission;
  admission.num_tokens = 3;

  cache.SetNow(100);
  REQUIRE(cache.TryAdmit(kSlot, {tokens, hashes, {}}, admission));
  cache.Free(kSlot);
  // The full block is hit; the other one, freed to the front, is allocated again.
  cache.SetNow(104);
  admission.cached_prefix = cache.FindCachedPrefix(hashes, 2);
  REQUIRE(admission.cached_prefix.size() == 1);
  REQUIRE(cache.TryAdmit(kSlot, {tokens, hashes, {}}, admission));
  cache.Free(kSlot);
  auto evictions = cache.TakeEvictions();
  REQUIRE(evictions.size() == 1);
  CHECK(evictions[0].lifetime_s == 4);

  cache.SetNow(109);
  const std::vector<TokenId> others = {7, 8, 9};
  hashes.clear();
  cache.ExtendHashes(others, {}, &hashes);
  admission.cached_prefix = {};
  REQUIRE(cache.TryAdmit(kSlot, {others, hashes, {}}, admission));
  evictions = cache.TakeEvictions();
  REQUIRE(evictions.size() == 2);
  CHECK(evictions[0].lifetime_s == 5);
  CHECK(evictions[1].lifetime_s == 9);
  CHECK(evictions[1].idle_s == 5);
}

TEST_CASE("Residency: without a sample, or without a prefix cache, nothing is reported") {
  KvCacheConfig config;
  config.enable_prefix_caching = GENERATE(true, false);
  config.residency_sample = config.enable_prefix_caching ? 0.0 : 1.0;
  config.num_blocks = 2;
  config.block_size = 2;
  config.max_num_seqs = 1;
  config.max_model_len = 2;
  KvCacheManager cache(config);
  const std::vector<TokenId> tokens = {1};
  Admission admission;
  admission.num_tokens = 1;
  for (int i = 0; i < 5; ++i) {
    cache.SetNow(i);
    REQUIRE(cache.TryAdmit(RequestSlot{0}, {tokens, {}, {}}, admission));
    cache.Free(RequestSlot{0});
  }
  CHECK(cache.TakeEvictions().empty());
}

}  // namespace
}  // namespace tandem
