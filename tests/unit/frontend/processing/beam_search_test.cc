// A beam search against an exhaustive search and against the plain definition.

#include "frontend/processing/beam_search.h"

#include <algorithm>
#include <cmath>

#include "tests/support/dice.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Tokens = std::vector<TokenId>;

constexpr TokenId kVocabSize = 4;
constexpr TokenId kEnd = 3;

// A model: the logprobs of the tokens after some output, from a seed.
std::vector<double> LogprobsAfter(const Tokens& output, uint64_t seed) {
  for (const TokenId token : output) seed = seed * 31 + static_cast<uint64_t>(token) + 1;
  Dice dice(seed);
  std::vector<double> logprobs;
  double sum = 0;
  for (TokenId token = 0; token < kVocabSize; ++token) {
    logprobs.push_back(dice.Roll(0, 40'000) / 10'000.0);
    sum += std::exp(logprobs.back());
  }
  for (double& logprob : logprobs) logprob -= std::log(sum);
  return logprobs;
}

// As an engine reports them: the most likely tokens, best first.
PositionLogprobs PositionAfter(const Tokens& output, uint64_t seed, int64_t num_tokens) {
  PositionLogprobs position;
  const std::vector<double> logprobs = LogprobsAfter(output, seed);
  for (TokenId token = 0; token < kVocabSize; ++token) {
    position.top.push_back({.token_id = token,
                            .text = "",
                            .bytes = "",
                            .logprob = logprobs[static_cast<size_t>(token)]});
  }
  std::sort(position.top.begin(), position.top.end(),
            [](const ScoredToken& a, const ScoredToken& b) { return a.logprob > b.logprob; });
  position.top.resize(std::min(position.top.size(), static_cast<size_t>(num_tokens)));
  position.token = position.top.front();
  return position;
}

struct Found {
  Tokens tokens;
  double score = 0;
};

bool IsBetter(const Found& a, const Found& b) { return a.score > b.score; }

double Score(const Tokens& tokens, double sum, double penalty) {
  return sum / std::pow(static_cast<double>(tokens.size()), penalty);
}

// Every output that ends, or has max_tokens, best first.
void Enumerate(const Tokens& output, double sum, int64_t max_tokens, double penalty, uint64_t seed,
               std::vector<Found>* all) {
  const std::vector<double> logprobs = LogprobsAfter(output, seed);
  for (TokenId token = 0; token < kVocabSize; ++token) {
    Tokens longer = output;
    longer.push_back(token);
    const double longer_sum = sum + logprobs[static_cast<size_t>(token)];
    if (token == kEnd || static_cast<int64_t>(longer.size()) == max_tokens) {
      all->push_back({longer, Score(longer, longer_sum, penalty)});
    } else {
      Enumerate(longer, longer_sum, max_tokens, penalty, seed, all);
    }
  }
}

// The definition of a narrow search: of each live output the most likely tokens, twice the width,
// are looked at. It keeps everything that ends and never stops early.
// allowed: where it is not empty, all of its tokens instead, and no others.
std::vector<Found> SearchPlainly(int width, int64_t max_tokens, double penalty, uint64_t seed,
                                 const Tokens& allowed = {}) {
  struct Live {
    Tokens tokens;
    double sum = 0;
  };
  std::vector<Live> live(1);
  std::vector<Found> found;
  for (int64_t step = 0; step < max_tokens; ++step) {
    std::vector<Live> next;
    for (const Live& beam : live) {
      const int64_t num_tokens = allowed.empty() ? 2 * width : kVocabSize;
      for (const ScoredToken& token : PositionAfter(beam.tokens, seed, num_tokens).top) {
        if (!allowed.empty() && std::ranges::find(allowed, token.token_id) == allowed.end()) {
          continue;
        }
        Live longer = beam;
        longer.tokens.push_back(token.token_id);
        longer.sum += token.logprob;
        if (token.token_id == kEnd) {
          found.push_back({longer.tokens, Score(longer.tokens, longer.sum, penalty)});
        } else {
          next.push_back(std::move(longer));
        }
      }
    }
    std::sort(next.begin(), next.end(), [](const Live& a, const Live& b) { return a.sum > b.sum; });
    next.resize(std::min(next.size(), static_cast<size_t>(width)));
    live = std::move(next);
  }
  for (const Live& beam : live)
    found.push_back({beam.tokens, Score(beam.tokens, beam.sum, penalty)});
  std::sort(found.begin(), found.end(), IsBetter);
  found.resize(std::min(found.size(), static_cast<size_t>(width)));
  return found;
}

// As an engine reports chosen tokens: what was drawn, then those in their own order.
PositionLogprobs PositionOf(const Tokens& allowed, const Tokens& output, uint64_t seed) {
  const PositionLogprobs all = PositionAfter(output, seed, kVocabSize);
  PositionLogprobs position = {all.token, {all.token}};
  for (const TokenId id : allowed) {
    const auto token = std::ranges::find(all.top, id, &ScoredToken::token_id);
    if (id != all.token.token_id) position.top.push_back(*token);
  }
  return position;
}

std::vector<Beam> Search(const BeamOptions& options, int64_t max_tokens, uint64_t seed,
                         int64_t* num_steps = nullptr) {
  BeamSearch search(options, max_tokens);
  while (!search.is_done()) {
    std::vector<PositionLogprobs> positions;
    for (const Beam& beam : search.live()) {
      positions.push_back(options.allowed_ids.empty()
                              ? PositionAfter(beam.token_ids, seed, options.num_candidates())
                              : PositionOf(options.allowed_ids, beam.token_ids, seed));
    }
    search.Advance(std::move(positions));
    if (num_steps != nullptr) ++*num_steps;
  }
  return search.Best();
}

void CheckEqual(const std::vector<Beam>& beams, const std::vector<Found>& expected,
                double penalty) {
  REQUIRE(beams.size() == expected.size());
  for (size_t i = 0; i < beams.size(); ++i) {
    CHECK(beams[i].token_ids == expected[i].tokens);
    CHECK(beams[i].has_ended == (expected[i].tokens.back() == kEnd));
    CHECK(Score(beams[i].token_ids, beams[i].sum_logprobs, penalty) ==
          Approx(expected[i].score).epsilon(1e-12));
  }
}

TEST_CASE("a beam search that is wide enough finds what an exhaustive search finds") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const double penalty : {-1.0, 0.0, 0.7, 1.0, 2.0}) {
      const int64_t max_tokens = 1 + static_cast<int64_t>(seed % 4);
      CAPTURE(seed, penalty, max_tokens);
      std::vector<Found> all;
      Enumerate({}, 0, max_tokens, penalty, seed, &all);
      std::sort(all.begin(), all.end(), IsBetter);
      constexpr int kWidth = 81;  // live outputs of four tokens
      all.resize(std::min<size_t>(all.size(), kWidth));
      const BeamOptions options = {
          .width = kWidth, .length_penalty = penalty, .end_ids = {kEnd}, .num_logprobs = {}};
      CheckEqual(Search(options, max_tokens, seed), all, penalty);
    }
  }
}

TEST_CASE("a narrow beam search finds what its definition finds, in no more steps") {
  int64_t num_saved = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Dice dice(seed + 1000);
    const int width = dice.Roll(1, 4);
    const int64_t max_tokens = dice.Roll(1, 12);
    const double penalty = dice.Roll(-10, 20) / 10.0;
    CAPTURE(seed, width, max_tokens, penalty);
    const BeamOptions options = {
        .width = width, .length_penalty = penalty, .end_ids = {kEnd}, .num_logprobs = {}};
    int64_t num_steps = 0;
    CheckEqual(Search(options, max_tokens, seed, &num_steps),
               SearchPlainly(width, max_tokens, penalty, seed), penalty);
    CHECK(num_steps <= max_tokens);
    num_saved += max_tokens - num_steps;
  }
  CHECK(num_saved > 0);
}

TEST_CASE("a beam search among allowed tokens finds what its definition finds among them") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Dice dice(seed + 2000);
    const int width = dice.Roll(1, 4);
    const int64_t max_tokens = dice.Roll(1, 8);
    const Tokens sets[] = {{0}, {0, 2}, {1, kEnd}, {0, 1, 2, kEnd}, {kEnd}};
    const Tokens& allowed = sets[dice.Roll(0, 4)];
    CAPTURE(seed, width, max_tokens, allowed);
    const BeamOptions options = {.width = width,
                                 .length_penalty = 1,
                                 .end_ids = {kEnd},
                                 .num_logprobs = {},
                                 .allowed_ids = allowed};
    // Of one token there is one output, whatever the width.
    CheckEqual(Search(options, max_tokens, seed),
               SearchPlainly(width, max_tokens, 1, seed, allowed), 1);
  }
}

TEST_CASE("a token that cannot come ends no search with it") {
  const BeamOptions options = {
      .width = 2, .length_penalty = 1, .end_ids = {}, .num_logprobs = {}, .allowed_ids = {1, 2}};
  BeamSearch search(options, 3);
  PositionLogprobs position;
  position.token = {.token_id = 1, .text = "", .bytes = "", .logprob = 0};
  position.top = {position.token,
                  {.token_id = 2, .text = "", .bytes = "", .logprob = kLowestLogprob}};
  search.Advance({position});
  REQUIRE(search.live().size() == 1);
  CHECK(search.live()[0].token_ids == Tokens{1});
  position.top.erase(position.top.begin());
  search.Advance({position});
  CHECK(search.live().empty());
  CHECK(search.is_done());
}

TEST_CASE("a beam has the logprobs of its own tokens") {
  const BeamOptions options = {
      .width = 3, .length_penalty = 1, .end_ids = {kEnd}, .num_logprobs = 2};
  for (const Beam& beam : Search(options, 6, 7)) {
    REQUIRE(beam.logprobs.size() == beam.token_ids.size());
    Tokens before;
    double sum = 0;
    for (size_t i = 0; i < beam.token_ids.size(); ++i) {
      const auto expected = LogprobsAfter(before, 7);
      for (const ScoredToken& token : beam.logprobs[i]->top) {
        CHECK(token.logprob == expected[static_cast<size_t>(token.token_id)]);
      }
      sum += expected[static_cast<size_t>(beam.token_ids[i])];
      before.push_back(beam.token_ids[i]);
    }
    CHECK(sum == Approx(beam.sum_logprobs).epsilon(1e-12));
  }
}

TEST_CASE("without an end token every beam has max_tokens") {
  const BeamOptions options = {.width = 2, .length_penalty = 1, .end_ids = {}, .num_logprobs = {}};
  for (const Beam& beam : Search(options, 9, 3)) {
    CHECK(beam.token_ids.size() == 9);
    CHECK(!beam.has_ended);
  }
}

}  // namespace
}  // namespace tandem
