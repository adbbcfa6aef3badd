#include "engine_core/speculation/ngram_index.h"

#include <vector>

#include "tests/support/dice.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Tokens = std::vector<TokenId>;

// The rule as it is written: the longest run first, then the first place.
int32_t FindByTrying(const Tokens& tokens, int32_t min, int32_t max) {
  const auto n = static_cast<int32_t>(tokens.size());
  for (int32_t length = std::min(max, n - 1); length >= min; --length) {
    for (int32_t end = length; end < n; ++end) {
      if (std::equal(tokens.end() - length, tokens.end(), tokens.begin() + end - length))
        return end;
    }
  }
  return -1;
}

TEST_CASE("The longest run wins, then the first place, at every length of random texts") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Dice dice(seed);
    const int32_t min = dice.Roll(1, 4), max = min + dice.Roll(0, 4), num_words = dice.Roll(1, 6);
    NgramIndex index(min, max, seed);
    Tokens tokens;
    for (int i = 0; i < 150; ++i) {
      const int32_t count = dice.Roll(1, 4);
      for (int32_t t = 0; t < count; ++t) tokens.push_back(dice.Roll(0, num_words));
      REQUIRE(index.Find(tokens) == FindByTrying(tokens, min, max));
    }
  }
}

TEST_CASE("A new request finds nothing of the one before") {
  NgramIndex index(2, 2, 1);
  CHECK(index.Find(Tokens{1, 2, 3, 1, 2}) == 2);
  index.Clear();
  CHECK(index.Find(Tokens{}) == -1);
  CHECK(index.Find(Tokens{4, 1, 2}) == -1);
  CHECK(index.Find(Tokens{4, 1, 2, 1, 2}) == 3);
}

// One token or two that alternate are what makes quadratic searches slow.
TEST_CASE("A million equal tokens take linear time") {
  const Tokens tokens(1'000'000, 7);
  NgramIndex index(1, 4, 1);
  CHECK(index.Find(tokens) == 4);
}

}  // namespace
}  // namespace tandem
