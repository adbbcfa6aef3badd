#include "engine_core/kv_cache/block_hash.h"

#include <algorithm>
#include <numeric>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<TokenId> Iota(int count, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

ExtraKeys Salt(const std::string& salt) { return {.adapter = {}, .items = {}, .cache_salt = salt}; }

ExtraKeys Lora(const std::string& name, const std::string& path, AdapterId id = 1) {
  ExtraKeys keys;
  keys.adapter = {.id = id, .name = name, .path = path, .version = 0};
  return keys;
}

std::vector<std::string> HexOf(int num_tokens, const ExtraKeys& keys) {
  std::vector<BlockHash> hashes;
  BlockHasher(16).Extend(Iota(num_tokens), keys, &hashes);
  std::vector<std::string> hex;
  for (const BlockHash& hash : hashes) hex.push_back(hash.ToHex());
  return hex;
}

TEST_CASE("sha256_cbor vectors: NONE_HASH, a chain of two blocks, a salt, the event integer") {
  BlockHasher hasher(16);
  CHECK(hasher.none_hash().ToHex() ==
        "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
  std::vector<BlockHash> hashes;
  hasher.Extend(Iota(32), {}, &hashes);
  REQUIRE(hashes.size() == 2);
  CHECK(hashes[0].ToHex() == "dc918a88b139e5afe60b88eda27508d4aee16c10fdc354791efea06206ac0749");
  CHECK(hashes[1].ToHex() == "c300ec275d7bf08af8fc63e76cdc0086911bbc7091e03c5cf892553bef84ef0c");
  CHECK(hashes[0].ToEventInteger() == 2233398808101521225u);
  std::vector<BlockHash> salted;
  hasher.Extend(Iota(16), Salt("abc"), &salted);
  REQUIRE(salted.size() == 1);
  CHECK(salted[0].ToHex() == "f48a9bde36dd58e71d127c848f27aa2baaa237ec04c8c38ee9c9a8fbb5c17ce2");
}

TEST_CASE("Embeddings are part of the hashes of the blocks they overlap, and of no other") {
  const auto hashes_of = [](int32_t num_rows, char last) {
    PromptEmbeddings embeddings{.num_columns = 1, .runs = {{0, num_rows}}, .data = {}};
    embeddings.data.assign(static_cast<size_t>(num_rows) * 4, 'x');
    embeddings.data.back() = last;
    ExtraKeys keys;
    keys.embeddings = std::make_shared<const PromptEmbeddings>(std::move(embeddings));
    std::vector<BlockHash> hashes;
    BlockHasher(16).Extend(std::vector<TokenId>(48, 0), keys, &hashes);
    return hashes;
  };
  const std::vector<BlockHash> a = hashes_of(20, 'a'), b = hashes_of(20, 'b');
  std::vector<BlockHash> none;
  BlockHasher(16).Extend(std::vector<TokenId>(48, 0), {}, &none);
  CHECK(a[0] == b[0]);
  CHECK(a[0] != none[0]);
  CHECK(a[1] != b[1]);
  CHECK(a == hashes_of(20, 'a'));
  // The third block has no row: it differs by its parent alone.
  CHECK(hashes_of(32, 'x')[2] != none[2]);
}

TEST_CASE("Embeddings between tokens: equal rows at other places are other blocks") {
  const auto hashes_of = [](std::vector<PromptEmbeddings::Run> runs) {
    PromptEmbeddings embeddings{.num_columns = 1, .runs = std::move(runs), .data = {}};
    for (const PromptEmbeddings::Run& run : embeddings.runs) {
      embeddings.data.append(static_cast<size_t>(run.num_rows) * 4, 'x');
    }
    ExtraKeys keys;
    keys.embeddings = std::make_shared<const PromptEmbeddings>(std::move(embeddings));
    std::vector<BlockHash> hashes;
    BlockHasher(16).Extend(std::vector<TokenId>(48, 0), keys, &hashes);
    return hashes;
  };
  using Runs = std::vector<PromptEmbeddings::Run>;
  std::vector<std::vector<BlockHash>> all;
  for (const Runs& runs : {Runs{{16, 4}}, Runs{{17, 4}}, Runs{{18, 4}}, Runs{{16, 2}, {19, 2}},
                           Runs{{15, 4}}, Runs{{16, 16}}}) {
    const std::vector<BlockHash> hashes = hashes_of(runs);
    for (const auto& other : all) CHECK(hashes[1] != other[1]);
    all.push_back(hashes);
  }
  std::vector<BlockHash> none;
  BlockHasher(16).Extend(std::vector<TokenId>(48, 0), {}, &none);
  CHECK(all[1][0] == none[0]);  // before the rows the prompt is text as any other
}

// Recorded from vLLM 0.33.0's own functions.
TEST_CASE("sha256_cbor vectors: adapters by name and path, with a salt after them") {
  using Hex = std::vector<std::string>;
  const Hex of_a = {"f3d654af513c44d24150142ded43ac1d56bd983ea7cccc9d7050aa10bf979a58",
                    "f3e43653efa4590f02af5081aabad6994480cc935dd45c691b480f3172f26791"};
  CHECK(HexOf(40, Lora("a", "/p/a")) == of_a);
  CHECK(HexOf(40, Lora("a", "/p/a", /*id=*/7)) == of_a);
  CHECK(HexOf(40, Lora("a", "/p/b")) ==
        Hex{"caf9ec38b8f8442ecdaa3b4a7a49fc2c2c8642b522c17a7a4741aaa01e194135",
            "266691c811b01b44e72053e13edae0faf903c0de87d9cc383111a038a48d1bd7"});
  CHECK(HexOf(40, Lora("b", "/p/a")) ==
        Hex{"c819e4f17fa5b226d0636c8f939736a9deca23e198fc54778200e1c1073e5307",
            "d70eaf4d071f21c9c0e8f8cbe7f12359df1508655e2dd89136466453a779e2ff"});
  ExtraKeys salted = Lora("a", "/p/a");
  salted.cache_salt = "salt";
  CHECK(HexOf(40, salted) ==
        Hex{"6047e1bc1249cc03431b9bf4eadb75d7bae5cbb11229c4abac4a689878e63f46",
            "ca7133c121305c4029678adfc063a45e09a074e967df706b2adf4835958f0715"});
}

// Made in Python: sha256 over canonical CBOR of (parent, tokens, extra keys), by an encoder that
// reproduces the vectors above; the form of the keys is vLLM's.
TEST_CASE("sha256_cbor vectors: items in the blocks they overlap, between adapter and salt") {
  using Hex = std::vector<std::string>;
  ExtraKeys keys;  // A in blocks 0 and 1, B in 1 and 2, none in 3
  keys.items = {{.identifier = "A", .begin = 3, .num_tokens = 17},
                {.identifier = "B", .begin = 20, .num_tokens = 13}};
  CHECK(HexOf(64, keys) == Hex{"b5ecdad3833e73a984405bbaa6c49e1af711904cb7ee2c02e9abd1f5e0e5505c",
                               "f24d5d37ab5f75469b08c8b211226c92367c26eab6b89b03450cc07b2cc986e8",
                               "77cb4f0664b3ecdc222fa6fd92ed30f88cce3efb94ace0b0e07ef8d936c0c222",
                               "c84cd22f9fc8a2edfd37c71440039cebfc6f49d39fdf84b19896173ebbbda184"});
  keys.adapter = Lora("a", "/p/a").adapter;
  keys.cache_salt = "salt";
  CHECK(HexOf(64, keys) == Hex{"fdde6d198da39c4d7488d0c8f2c2a0589c496e1286d8a9d1c3264cbab8d72aa4",
                               "f18c1de129d0288adfabc43b8f0cf625140da43cf679bfe85a0313f7359fa005",
                               "7dd1a12a808a95e97c7662ab2f2192b75e6538273a7271142bdb9e575ed49a3b",
                               "be2dd5f20cf7c39e9c2a02ab8ca06348cfc72d2f5824799c580b15326f42d48f"});
  ExtraKeys reloaded = Lora("a", "/p/a");
  reloaded.adapter.version = 2;
  CHECK(HexOf(16, reloaded) ==
        Hex{"580446c2c57cdec21bb67444c188a75e670910317742655004a718a26406111e"});
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
  hasher.Extend(Iota(32), {}, &hashes);
  REQUIRE(hashes.size() == 2);
  CHECK(hex(hashes[0]) == "f2313f4548e185b1a011187a342021cc");
  CHECK(hashes[0].ToEventInteger() == 11534027033812148684u);
  CHECK(hex(hashes[1]) == "74ee692fcce0684e02de354d6ca364b4");
  std::vector<BlockHash> salted, long_ids;
  hasher.Extend(Iota(16), Salt("abc"), &salted);
  CHECK(hex(salted[0]) == "486134ce2a18a24bf705a307c02de012");
  BlockHasher(32, HashAlgorithm::kXxhashCbor).Extend(Iota(32, 100000), {}, &long_ids);
  CHECK(hex(long_ids[0]) == "fe0c6c3bbe1aacaa0239fbaeccdaf075");
}

TEST_CASE("Block hashes: only full blocks, and the same whether given at once or token by token") {
  BlockHasher hasher(4);
  const std::vector<TokenId> tokens = Iota(19, 1000);
  std::vector<BlockHash> at_once;
  hasher.Extend(tokens, Salt("salt"), &at_once);
  REQUIRE(at_once.size() == 4);
  std::vector<BlockHash> one_by_one;
  for (size_t n = 1; n <= tokens.size(); ++n) {
    hasher.Extend(std::span(tokens).first(n), Salt("salt"), &one_by_one);
    CHECK(one_by_one.size() == n / 4);
  }
  CHECK(one_by_one == at_once);
}

TEST_CASE("Block hashes: a salt, an earlier token and the seed change every later block") {
  BlockHasher hasher(4);
  std::vector<TokenId> tokens = Iota(12);
  std::vector<BlockHash> plain, salted, changed, seeded;
  hasher.Extend(tokens, {}, &plain);
  hasher.Extend(tokens, Salt("s"), &salted);
  BlockHasher(4, HashAlgorithm::kSha256Cbor, "other seed").Extend(tokens, {}, &seeded);
  tokens[0] = 99;
  hasher.Extend(tokens, {}, &changed);
  for (size_t i = 0; i < 3; ++i) {
    CHECK_FALSE(plain[i] == salted[i]);
    CHECK_FALSE(plain[i] == changed[i]);
    CHECK_FALSE(plain[i] == seeded[i]);
  }
}

TEST_CASE("Block hashes: each extra key keeps blocks apart, also from those of the other keys") {
  ExtraKeys reloaded = Lora("x", "/x");
  reloaded.adapter.version = 1;
  ExtraKeys item;
  item.items = {{.identifier = "x", .begin = 0, .num_tokens = 16}};
  ExtraKeys item_later = item;
  item_later.items[0].begin = 1;
  ExtraKeys other_item = item;
  other_item.items[0].identifier = "y";
  std::vector<std::string> all;
  for (const ExtraKeys& keys : {ExtraKeys(), Salt("x"), Salt("y"), Lora("x", "/x"), Lora("y", "/x"),
                                Lora("x", "/y"), reloaded, item, item_later, other_item}) {
    all.push_back(HexOf(16, keys)[0]);
  }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
}

TEST_CASE("Block hashes: an item changes no block before it, and every block after it") {
  ExtraKeys keys;
  keys.items = {{.identifier = "x", .begin = 16, .num_tokens = 1}};
  const auto with = HexOf(64, keys), without = HexOf(64, {});
  CHECK(with[0] == without[0]);
  for (size_t i = 1; i < 4; ++i) CHECK(with[i] != without[i]);
}

TEST_CASE("Block hashes: token ids of every CBOR length give different hashes") {
  BlockHasher hasher(1);
  std::vector<BlockHash> hashes;
  for (TokenId token : {0, 23, 24, 255, 256, 65535, 65536, 2147483647}) {
    std::vector<BlockHash> one;
    hasher.Extend(std::vector<TokenId>{token}, {}, &one);
    for (const BlockHash& other : hashes) CHECK_FALSE(one[0] == other);
    hashes.push_back(one[0]);
  }
}

}  // namespace
}  // namespace tandem
