#include "frontend/engine_client/prefix_index.h"

#include <numeric>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Counts = std::vector<int64_t>;

wire::EngineCoreRequest Prompt(int num_tokens, TokenId first = 0) {
  wire::EngineCoreRequest request;
  request.prompt_token_ids.resize(static_cast<size_t>(num_tokens));
  std::iota(request.prompt_token_ids.begin(), request.prompt_token_ids.end(), first);
  return request;
}

TEST_CASE("prefix_index: hashes are of whole blocks and of all before them") {
  const auto hashes = PrefixHashes(Prompt(70), 32);
  CHECK(hashes.size() == 2);
  CHECK(PrefixHashes(Prompt(64), 32) == hashes);
  wire::EngineCoreRequest other = Prompt(70);
  other.prompt_token_ids[40] = 1;
  CHECK(PrefixHashes(other, 32)[0] == hashes[0]);
  CHECK(PrefixHashes(other, 32)[1] != hashes[1]);
  CHECK(PrefixHashes(Prompt(31), 32).empty());
  CHECK(PrefixHashes(Prompt(70), 0).empty());
}

TEST_CASE("prefix_index: adapters and salts share nothing") {
  const auto hashes = PrefixHashes(Prompt(32), 32);
  wire::EngineCoreRequest salted = Prompt(32), adapted = Prompt(32);
  salted.cache_salt = "a";
  adapted.lora_request.packed =
      "\xa1"
      "a";
  CHECK(PrefixHashes(salted, 32) != hashes);
  CHECK(PrefixHashes(adapted, 32) != hashes);
  CHECK(PrefixHashes(salted, 32) != PrefixHashes(adapted, 32));
}

TEST_CASE("prefix_index: each engine has what was sent to it") {
  PrefixIndex index(3);
  for (int engine = 0; engine < 3; ++engine) index.Reset(engine, 100);
  const auto hashes = PrefixHashes(Prompt(32 * 4), 32);
  CHECK(index.NumCached(hashes) == Counts{0, 0, 0});
  index.Add(1, hashes);
  index.Add(2, PrefixHashes(Prompt(32 * 2 + 5), 32));
  CHECK(index.NumCached(hashes) == Counts{0, 4, 2});
  CHECK(index.NumCached(PrefixHashes(Prompt(32 * 9), 32)) == Counts{0, 4, 2});
  CHECK(index.NumCached({}) == Counts{0, 0, 0});
  index.Reset(1, 100);
  CHECK(index.NumCached(hashes) == Counts{0, 0, 2});
}

TEST_CASE("prefix_index: what was not used for as many blocks as there are is forgotten") {
  PrefixIndex index(1);
  index.Reset(0, 8);
  const auto first = PrefixHashes(Prompt(32 * 2), 32);
  const auto used = PrefixHashes(Prompt(32 * 2, 500), 32);
  index.Add(0, first);
  for (TokenId i = 0; i < 8; ++i) {
    index.Add(0, used);
    CHECK(index.NumCached(used) == Counts{2});
    index.Add(0, PrefixHashes(Prompt(32, 10'000 * (i + 1)), 32));
    if (i == 0) CHECK(index.NumCached(first) == Counts{2});
  }
  CHECK(index.NumCached(first) == Counts{0});
  index.Reset(0, 0);  // an engine that reports no cache
  index.Add(0, first);
  CHECK(index.NumCached(first) == Counts{0});
}

}  // namespace
}  // namespace tandem
