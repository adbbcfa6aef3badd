#include <algorithm>
#include <cmath>
#include <limits>

#include "common/random.h"
#include "engine_core/sampling/row_math.h"
#include "engine_core/sampling/sampler.h"
#include "tests/support/sampling_goldens.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Case = SamplingGolden;

SampleInput InputOf(const Case& c, std::span<float> logits) {
  SampleInput input;
  input.logits = logits;
  input.config = &c.config;
  input.counts = &c.counts;
  input.output_ids = c.output_ids;
  return input;
}

TEST_CASE("sampling goldens: the final distribution of all cases") {
  const std::vector<Case> cases = ReadSamplingGoldens();
  REQUIRE(cases.size() == 64);
  SamplerScratch scratch;
  for (const Case& c : cases) {
    CAPTURE(c.index);
    std::vector<float> logits = c.logits;
    ProcessLogits(InputOf(c, logits), &scratch);
    const RowMax best = FindMax(logits);
    CHECK(best.argmax == c.argmax);
    std::vector<double> probs(logits.size(), 0);
    if (c.config.is_greedy()) {
      probs[static_cast<size_t>(best.argmax)] = 1;
    } else {
      TokenDistribution distribution;
      distribution.Build(logits, best.max, LimitsOf(c.config, logits.size()));
      for (size_t i = 0; i < probs.size(); ++i) {
        probs[i] = distribution.Probability(static_cast<TokenId>(i));
      }
    }
    const bool huge = FindMax(c.logits).max > 1000;
    double worst = 0;
    for (size_t i = 0; i < probs.size(); ++i) {
      CAPTURE(i, c.probs[i], probs[i]);
      worst = std::max(worst, std::abs(probs[i] - c.probs[i]));
      if (c.probs[i] > 1e-6f && !(probs[i] > 0)) FAIL_CHECK("a possible token was dropped");
      if (c.probs[i] == 0 && !(probs[i] < 1e-12)) FAIL_CHECK("an impossible token was kept");
    }
    CHECK(worst <= (huge ? 2e-5 : 1e-5));
  }
}

TEST_CASE("sampling goldens: raw top logprobs are of the untouched logits") {
  SamplerScratch scratch;
  for (const Case& c : ReadSamplingGoldens()) {
    CAPTURE(c.index);
    std::vector<float> logits = c.logits;
    SampleInput input = InputOf(c, logits);
    SamplingConfig config = c.config;
    config.num_logprobs = 5;
    input.config = &config;
    TokenId ids[6];
    float logprobs[6];
    int64_t rank = 0;
    input.logprobs = {ids, logprobs, &rank};
    const SampleResult sampled = SampleToken(input, &scratch);
    REQUIRE(sampled.status.ok());
    CHECK(ids[0] == sampled.token_id);
    for (size_t i = 0; i < 5; ++i) {
      CHECK(ids[i + 1] == c.raw_top5_ids[i]);
      CHECK(logprobs[i + 1] == Approx(c.raw_top5_logprobs[i]).margin(2e-5));
    }
  }
}

// ---- --logprobs-mode ----

constexpr double kNever = -std::numeric_limits<double>::infinity();

// The row after masks, bias, penalties and temperature, from the definitions, in double.
std::vector<double> ProcessedRow(const Case& c) {
  std::vector<double> row(c.logits.begin(), c.logits.end());
  const SamplingConfig& config = c.config;
  const auto& allowed = config.allowed_token_ids;
  for (size_t i = 0; i < row.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const auto count = std::count(c.output_ids.begin(), c.output_ids.end(), id);
    const bool seen = count > 0 || std::count(c.prompt_ids.begin(), c.prompt_ids.end(), id) > 0;
    bool masked = !allowed.empty() && std::count(allowed.begin(), allowed.end(), id) == 0;
    for (const auto& word : config.bad_words) {
      const size_t before = word.size() - 1;
      masked |= word.back() == id && before <= c.output_ids.size() &&
                std::equal(word.begin(), word.end() - 1, c.output_ids.end() - before);
    }
    const auto& stops = config.min_tokens_mask;
    masked |= static_cast<int>(c.output_ids.size()) < config.min_tokens &&
              std::count(stops.begin(), stops.end(), id) > 0;
    for (const auto& [token, bias] : config.logit_bias) row[i] += token == id ? bias : 0;
    if (seen) row[i] *= row[i] > 0 ? 1.0 / config.repetition_penalty : config.repetition_penalty;
    if (count > 0) {
      row[i] -= config.frequency_penalty * static_cast<double>(count) + config.presence_penalty;
    }
    if (masked) row[i] = kNever;
    if (!config.is_greedy()) row[i] /= config.temperature;
  }
  return row;
}

// And after min_p, top_k and top_p; what these two cut is read off the golden distribution.
std::vector<double> LimitedRow(const Case& c) {
  std::vector<double> row = ProcessedRow(c);
  if (c.config.is_greedy()) return row;
  std::vector<double> sorted = row;
  std::sort(sorted.rbegin(), sorted.rend());
  const auto k = static_cast<size_t>(std::max(c.config.top_k, 0));
  const double least = k > 0 && k < row.size() ? sorted[k - 1] : kNever;
  const bool by_weight = c.config.top_p < 1 || c.config.min_p > 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] < least || (by_weight && c.probs[i] == 0)) row[i] = kNever;
  }
  return row;
}

std::vector<double> LogSoftmax(std::vector<double> row) {
  const double max = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const double x : row) sum += std::exp(x - max);
  for (double& x : row) x -= max + std::log(sum);
  return row;
}

std::vector<double> ExpectedRow(const Case& c, LogprobsMode mode) {
  std::vector<double> raw(c.logits.begin(), c.logits.end());
  switch (mode) {
    case LogprobsMode::kRawLogits:
      return raw;
    case LogprobsMode::kRawLogprobs:
      return LogSoftmax(raw);
    case LogprobsMode::kProcessedLogits:
      return LimitedRow(c);
    default:
      return LogSoftmax(LimitedRow(c));
  }
}

TEST_CASE("sampling goldens: every token's number in each logprobs mode") {
  SamplerScratch scratch;
  for (const LogprobsMode mode :
       {LogprobsMode::kRawLogprobs, LogprobsMode::kRawLogits, LogprobsMode::kProcessedLogprobs,
        LogprobsMode::kProcessedLogits}) {
    for (const Case& c : ReadSamplingGoldens()) {
      CAPTURE(static_cast<int>(mode), c.index);
      const std::vector<double> expected = ExpectedRow(c, mode);
      std::vector<float> logits = c.logits;
      SampleInput input = InputOf(c, logits);
      SamplingConfig config = c.config;
      config.num_logprobs = static_cast<int32_t>(logits.size());
      config.logprobs_mode = mode;
      input.config = &config;
      std::vector<TokenId> ids(logits.size() + 1);
      std::vector<float> reported(logits.size() + 1);
      int64_t rank = 0;
      input.logprobs = {ids, reported, &rank};
      const SampleResult sampled = SampleToken(input, &scratch);
      REQUIRE(sampled.status.ok());
      CHECK(ids[0] == sampled.token_id);
      double worst = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        const double want = expected[static_cast<size_t>(ids[i])];
        if (want == kNever || reported[i] == -std::numeric_limits<float>::infinity()) {
          if (want != reported[i])
            FAIL_CHECK("token " << ids[i] << ": " << reported[i] << ", not " << want);
          continue;
        }
        worst = std::max(worst, std::abs(reported[i] - want) / std::max(1.0, std::abs(want)));
        if (mode == LogprobsMode::kProcessedLogprobs && !config.is_greedy()) {
          CHECK(std::exp(want) == Approx(c.probs[static_cast<size_t>(ids[i])]).margin(2e-5));
        }
      }
      CHECK(worst <= 1e-5);
      const double of_drawn = expected[static_cast<size_t>(sampled.token_id)];
      CHECK(rank == std::count_if(expected.begin(), expected.end(), [&](double x) {
              return static_cast<float>(x) >= static_cast<float>(of_drawn);
            }));
      CHECK(std::is_sorted(reported.rbegin(), reported.rend() - 1));
    }
  }
}

// Upper tail of the chi-square distribution, by Wilson and Hilferty's normal approximation.
double ChiSquareTail(double x, double degrees) {
  const double scale = 2.0 / (9 * degrees);
  const double z = (std::cbrt(x / degrees) - (1 - scale)) / std::sqrt(scale);
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

TEST_CASE("sampling goldens: draws follow the distribution (chi-square, fixed seeds)") {
  constexpr int kDraws = 20'000;
  int num_greedy = 0, num_drawn = 0;
  SamplerScratch scratch;
  for (const Case& c : ReadSamplingGoldens()) {
    CAPTURE(c.index);
    std::vector<float> logits = c.logits;
    ProcessLogits(InputOf(c, logits), &scratch);
    std::vector<int> counts(logits.size(), 0);
    SamplingConfig config = c.config;
    // Processors were applied above; what is left are the limits, so that each draw is one call.
    SamplingConfig limits;
    limits.temperature = config.temperature;
    limits.top_p = config.top_p;
    limits.top_k = config.top_k;
    limits.min_p = config.min_p;
    if (limits.is_greedy()) {  // one token has all of the probability
      CHECK(SampleToken(InputOf(c, logits = c.logits), &scratch).token_id == c.argmax);
      ++num_greedy;
      continue;
    }
    TokenDistribution distribution;
    distribution.Build(logits, FindMax(logits).max, LimitsOf(limits, logits.size()));
    for (int i = 0; i < kDraws; ++i) {
      const double uniform =
          UniformAt(1234 + static_cast<uint64_t>(c.index), static_cast<uint64_t>(i));
      ++counts[static_cast<size_t>(distribution.Draw(uniform))];
    }
    double chi_square = 0, rest_expected = 0, rest_seen = 0;
    int cells = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const double expected = c.probs[i] * double{kDraws};
      if (expected < 5) {  // too rare for a cell of its own
        rest_expected += expected;
        rest_seen += counts[i];
        continue;
      }
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
      ++cells;
    }
    if (rest_expected >= 5) {
      chi_square += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
      ++cells;
    } else {
      CHECK(rest_seen <= rest_expected + 20);
    }
    if (cells > 1) CHECK(ChiSquareTail(chi_square, cells - 1) > 1e-4);
    ++num_drawn;
    // The same draw as a request makes it.
    SampleInput input = InputOf(c, logits = c.logits);
    SamplingConfig seeded = c.config;
    seeded.seed = 1234 + static_cast<uint64_t>(c.index);
    input.config = &seeded;
    input.position = 7;
    CHECK(SampleToken(input, &scratch).token_id == distribution.Draw(UniformAt(seeded.seed, 7)));
  }
  CHECK(num_greedy + num_drawn == 64);
}

}  // namespace
}  // namespace tandem
