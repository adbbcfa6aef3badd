#include "engine_core/kv_cache/block_hash.h"

#include <numeric>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<TokenId> Iota(int count, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST_CASE("sha256_cbor vectors: NONE_HASH, a chain of two blocks, a salt, the event integer") {
  BlockHasher hasher(16);
  CHECK(hasher.none_hash().ToHex() ==
        "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
  std::vector<BlockHash> hashes;
  hasher.Extend(Iota(32), "", &hashes);
  REQUIRE(hashes.size() == 2);
  CHECK(hashes[0].ToHex() == "dc918a88b139e5afe60b88eda27508d4aee16c10fdc354791efea06206ac0749");
  CHECK(hashes[1].ToHex() == "c300ec275d7bf08af8fc63e76cdc0086911bbc7091e03c5cf892553bef84ef0c");
  CHECK(hashes[0].ToEventInteger() == 2233398808101521225u);
  std::vector<BlockHash> salted;
  hasher.Extend(Iota(16), "abc", &salted);
  REQUIRE(salted.size() == 1);
  CHECK(salted[0].ToHex() == "f48a9bde36dd58e71d127c848f27aa2baaa237ec04c8c38ee9c9a8fbb5c17ce2");
}

// Made with Python's xxhash 4.1.0 and cbor2: xxh3_128_digest(cbor2.dumps((parent, tokens, extra),
// canonical=True)), parent of the first block xxh3_128_digest(cbor2.dumps(seed)).
TEST_CASE("xxhash_cbor vectors: NONE_HASH of two seeds, a chain, a salt, long ids") {
  const auto hex = [](const BlockHash& hash) {
    const std::string all = hash.ToHex();
    CHECK(all.substr(0, 32) == std::string(32, '0'));
    return all.substr(32);
  };
  BlockHasher hasher(16, HashAlgorithm::kXxhashCbor);
  CHECK(hex(hasher.none_hash()) == "a4e364baa0791a6f63bbf917db9b700d");
  CHECK(hex(BlockHasher(16, HashAlgorithm::kXxhashCbor, "0").none_hash()) ==
        "1ebe36576dcb573f26b99533a20aaeca");
  std::vector<BlockHash> hashes;
  hasher.Extend(Iota(32), "", &hashes);
  REQUIRE(hashes.size() == 2);
  CHECK(hex(hashes[0]) == "f2313f4548e185b1a011187a342021cc");
  CHECK(hashes[0].ToEventInteger() == 11534027033812148684u);
  CHECK(hex(hashes[1]) == "74ee692fcce0684e02de354d6ca364b4");
  std::vector<BlockHash> salted, long_ids;
  hasher.Extend(Iota(16), "abc", &salted);
  CHECK(hex(salted[0]) == "486134ce2a18a24bf705a307c02de012");
  BlockHasher(32, HashAlgorithm::kXxhashCbor).Extend(Iota(32, 100000), "", &long_ids);
  CHECK(hex(long_ids[0]) == "fe0c6c3bbe1aacaa0239fbaeccdaf075");
}

TEST_CASE("Block hashes: only full blocks, and the same whether given at once or token by token") {
  BlockHasher hasher(4);
  const std::vector<TokenId> tokens = Iota(19, 1000);
  std::vector<BlockHash> at_once;
  hasher.Extend(tokens, "salt", &at_once);
  REQUIRE(at_once.size() == 4);
  std::vector<BlockHash> one_by_one;
  for (size_t n = 1; n <= tokens.size(); ++n) {
    hasher.Extend(std::span(tokens).first(n), "salt", &one_by_one);
    CHECK(one_by_one.size() == n / 4);
  }
  CHECK(one_by_one == at_once);
}

TEST_CASE("Block hashes: a salt, an earlier token and the seed change every later block") {
  BlockHasher hasher(4);
  std::vector<TokenId> tokens = Iota(12);
  std::vector<BlockHash> plain, salted, changed, seeded;
  hasher.Extend(tokens, "", &plain);
  hasher.Extend(tokens, "s", &salted);
  BlockHasher(4, HashAlgorithm::kSha256Cbor, "other seed").Extend(tokens, "", &seeded);
  tokens[0] = 99;
  hasher.Extend(tokens, "", &changed);
  for (size_t i = 0; i < 3; ++i) {
    CHECK_FALSE(plain[i] == salted[i]);
    CHECK_FALSE(plain[i] == changed[i]);
    CHECK_FALSE(plain[i] == seeded[i]);
  }
}

TEST_CASE("Block hashes: token ids of every CBOR length give different hashes") {
  BlockHasher hasher(1);
  std::vector<BlockHash> hashes;
  for (TokenId token : {0, 23, 24, 255, 256, 65535, 65536, 2147483647}) {
    std::vector<BlockHash> one;
    hasher.Extend(std::vector<TokenId>{token}, "", &one);
    for (const BlockHash& other : hashes) CHECK_FALSE(one[0] == other);
    hashes.push_back(one[0]);
  }
}

}  // namespace
}  // namespace tandem
