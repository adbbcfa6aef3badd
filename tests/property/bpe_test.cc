// BPE by windows and by short scan against the definition: merge the pair of lowest rank, leftmost
// first, until none is left.

#include <algorithm>
#include <random>

#include "frontend/text/bpe.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Merges of one tokenizer as a table: ranks[left][right], by place in `tokens`.
struct MergeTable {
  MergeTable(const std::vector<std::string>& all_tokens, const std::vector<Bpe::Merge>& all_merges)
      : tokens(all_tokens), merges(all_merges) {
    ranks.assign(tokens.size(), std::vector<size_t>(tokens.size(), merges.size()));
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      ranks[Find(merges[rank].first)][Find(merges[rank].second)] = rank;
    }
  }
  size_t Find(const std::string& token) const {
    return static_cast<size_t>(std::find(tokens.begin(), tokens.end(), token) - tokens.begin());
  }

  const std::vector<std::string>& tokens;
  const std::vector<Bpe::Merge>& merges;
  std::vector<std::vector<size_t>> ranks;
};

std::vector<std::string> EncodeSlowly(std::string_view text, const MergeTable& table) {
  std::vector<size_t> symbols;
  for (const char c : text) symbols.push_back(table.Find(std::string(1, c)));
  while (true) {
    size_t best_rank = table.merges.size();
    size_t best_pos = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const size_t rank = table.ranks[symbols[i]][symbols[i + 1]];
      if (rank >= best_rank) continue;
      best_rank = rank;
      best_pos = i;
    }
    if (best_rank == table.merges.size()) break;
    const auto& [left, right] = table.merges[best_rank];
    symbols[best_pos] = table.Find(left + right);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_pos) + 1);
  }
  std::vector<std::string> spelled;
  for (const size_t symbol : symbols) spelled.push_back(table.tokens[symbol]);
  return spelled;
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

  const MergeTable table(tokens, merges);
  const auto some_text = [&](size_t length) {
    std::string text;
    // Runs of a repeated unit between random letters: what is far away decides where tokens begin.
    while (text.size() < length) {
      const std::string unit = tokens[draw(tokens.size())];
      for (size_t n = draw(4) == 0 ? draw(length) : 1; n > 0 && text.size() < length; --n) {
        text += unit;
      }
    }
    return text;
  };
  for (int round = 0; round < 10; ++round) {
    const bool is_long = round >= 8 && seed % 8 == 0;  // several windows
    const std::string text = some_text(draw(is_long ? 5000 : round < 4 ? 12 : 160));
    std::vector<TokenId> ids;
    REQUIRE(bpe.Encode(text, &ids).ok());
    std::vector<std::string> got;
    for (const TokenId id : ids) got.emplace_back(bpe.vocabulary().Text(id));
    CAPTURE(text);
    REQUIRE(got == EncodeSlowly(text, table));
  }
}

// Windows in a run of one symbol are merged once for all of them.
TEST_CASE("Bpe equals the quadratic definition on long runs of one letter") {
  const uint32_t seed = GENERATE(range(1u, 41u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](size_t end) {
    return std::uniform_int_distribution<size_t>(0, end - 1)(random);
  };
  constexpr size_t kLongest = 96;
  std::vector<std::string> tokens = {"a", "b"};
  std::vector<Bpe::Merge> merges;
  for (size_t tries = 4 + draw(40); tries > 0; --tries) {
    // Mostly runs, longer and longer; a few tokens that end or begin one.
    const size_t recent = draw(2) == 0 ? tokens.size() : std::min<size_t>(tokens.size(), 3);
    const Bpe::Merge merge = {tokens[tokens.size() - 1 - draw(recent)],
                              tokens[draw(5) == 0 ? 1 : draw(tokens.size())]};
    const std::string joined = merge.first + merge.second;
    if (joined.size() > kLongest) continue;
    if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
    merges.push_back(merge);
    if (std::find(tokens.begin(), tokens.end(), joined) == tokens.end()) tokens.push_back(joined);
  }
  std::shuffle(merges.begin(), merges.end(), random);
  std::vector<std::pair<TokenId, std::string>> entries;
  for (size_t i = 0; i < tokens.size(); ++i)
    entries.emplace_back(static_cast<TokenId>(i), tokens[i]);
  const Bpe bpe = Bpe::Create(Vocabulary(entries), merges, {}).value();
  const MergeTable table(tokens, merges);
  for (int round = 0; round < 3; ++round) {
    std::string text = std::string(1200 + draw(2500), 'a');
    for (size_t n = round == 0 ? 0 : 1 + draw(4); n > 0; --n) text[draw(text.size())] = 'b';
    std::vector<TokenId> ids;
    REQUIRE(bpe.Encode(text, &ids).ok());
    std::vector<std::string> got;
    for (const TokenId id : ids) got.emplace_back(bpe.vocabulary().Text(id));
    CAPTURE(text.size());
    REQUIRE(got == EncodeSlowly(text, table));
  }
}

}  // namespace
}  // namespace tandem
