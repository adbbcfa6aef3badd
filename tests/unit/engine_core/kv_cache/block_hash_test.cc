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
  BlockHasher(4, "other seed").Extend(tokens, "", &seeded);
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
