// BPE by heap and by short scan against the definition: merge the pair of lowest rank, leftmost
// first, until none is left.

#include <map>
#include <random>

#include "frontend/text/bpe.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<std::string> EncodeSlowly(std::string_view text,
                                      const std::vector<Bpe::Merge>& merges) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.emplace_back(1, c);
  while (true) {
    size_t best_rank = merges.size();
    size_t best_pos = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].first == symbols[i] && merges[rank].second == symbols[i + 1]) {
          best_rank = rank;
          best_pos = i;
        }
      }
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best_pos] += symbols[best_pos + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_pos) + 1);
  }
}

TEST_CASE("Bpe equals the quadratic definition on random merges and texts") {
  const uint32_t seed = GENERATE(range(1u, 401u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](size_t end) {
    return std::uniform_int_distribution<size_t>(0, end - 1)(random);
  };
  std::vector<std::string> tokens = {"a", "b", "c"};
  std::vector<Bpe::Merge> merges;
  for (size_t tries = 5 + draw(60); tries > 0; --tries) {
    const Bpe::Merge merge = {tokens[draw(tokens.size())], tokens[draw(tokens.size())]};
    const std::string joined = merge.first + merge.second;
    // A pair is listed once; a token may be the result of several merges.
    if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
    merges.push_back(merge);
    if (std::find(tokens.begin(), tokens.end(), joined) == tokens.end()) tokens.push_back(joined);
  }
  std::vector<std::pair<TokenId, std::string>> entries;
  for (size_t i = 0; i < tokens.size(); ++i)
    entries.emplace_back(static_cast<TokenId>(i), tokens[i]);
  const Bpe bpe = Bpe::Create(Vocabulary(entries), merges, {}).value();

  for (int round = 0; round < 8; ++round) {
    std::string text;
    for (size_t n = draw(round < 4 ? 12 : 160); n > 0; --n)
      text += static_cast<char>('a' + draw(3));
    std::vector<TokenId> ids;
    REQUIRE(bpe.Encode(text, &ids).ok());
    std::vector<std::string> got;
    for (const TokenId id : ids) got.emplace_back(bpe.vocabulary().Text(id));
    CAPTURE(text);
    REQUIRE(got == EncodeSlowly(text, merges));
  }
}

}  // namespace
}  // namespace tandem
