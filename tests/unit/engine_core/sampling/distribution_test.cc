#include "engine_core/sampling/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/random.h"
#include "engine_core/sampling/row_math.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// The same distribution by sorting everything, in double.
std::vector<double> BySorting(const std::vector<float>& logits, const DistributionLimits& limits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weight(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    weight[i] = std::exp((logits[i] - max) / limits.temperature);
    if (weight[i] < limits.min_p) weight[i] = 0;
  }
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (limits.top_k > 0 && static_cast<size_t>(limits.top_k) < order.size()) {
    const float kth = logits[order[static_cast<size_t>(limits.top_k) - 1]];
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] < kth) weight[i] = 0;
    }
  }
  if (limits.top_p < 1) {
    const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
    double before = 0;
    bool is_first = true;
    for (const size_t i : order) {
      const double own = weight[i];
      if (!is_first && before >= limits.top_p * total) weight[i] = 0;
      before += own;
      is_first = false;
    }
  }
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  for (double& w : weight) w /= total;
  return weight;
}

std::vector<double> ByBuckets(const std::vector<float>& logits, const DistributionLimits& limits) {
  TokenDistribution distribution;
  distribution.Build(logits, FindMax(logits).max, limits);
  std::vector<double> probs(logits.size(), 0);
  for (size_t i = 0; i < probs.size(); ++i) {
    probs[i] = distribution.Probability(static_cast<TokenId>(i));
  }
  return probs;
}

TEST_CASE("distribution: equals sorting the whole row, on random rows and limits") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto uniform = [&](uint64_t i) { return UniformAt(seed, i); };
    std::vector<float> logits(1 + static_cast<size_t>(uniform(0) * 700));
    const float scale = static_cast<float>(0.01 + 15 * uniform(1));
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = scale * static_cast<float>(uniform(100 + i) - 0.5);
      if (seed % 3 == 0) logits[i] = std::round(logits[i]);  // many ties
    }
    DistributionLimits limits;
    limits.temperature = static_cast<float>(0.2 + 2 * uniform(2));
    if (seed % 2 == 0) limits.top_k = 1 + static_cast<int32_t>(uniform(3) * 50);
    if (seed % 3 == 1) {  // a long tail far below the guessed weight
      for (float& logit : logits) logit -= 40 * static_cast<float>(&logit != logits.data());
    }
    if (seed % 5 != 0) limits.top_p = static_cast<float>(uniform(4));
    if (seed % 7 == 0) limits.min_p = static_cast<float>(0.3 * uniform(5));
    const std::vector<double> expected = BySorting(logits, limits), got = ByBuckets(logits, limits);
    double difference = 0;
    for (size_t i = 0; i < logits.size(); ++i) difference += std::abs(expected[i] - got[i]);
    CHECK(difference < 1e-4);
  }
}

TEST_CASE("distribution: exp is within 2e-7 of the exact value") {
  std::vector<float> x, out(1);
  for (int i = 0; i <= 8600; ++i) x.push_back(-0.01f * static_cast<float>(i));
  out.resize(x.size());
  ExpScaled(x, 0, 1, out);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(out[i] - exact) / exact);
  }
  CHECK(worst < 2e-7);
  CHECK(out[0] == 1.0f);
}

TEST_CASE("distribution: an unlimited draw finds the same token as adding up one by one") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    std::vector<float> logits(1 + static_cast<size_t>(UniformAt(seed, 0) * 2000));
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(200 * UniformAt(seed, 1 + i) - 100);
    }
    TokenDistribution distribution;
    distribution.Build(logits, FindMax(logits).max, {});
    for (uint64_t draw = 0; draw < 20; ++draw) {
      const double uniform = UniformAt(seed, draw, 1);
      const TokenId got = distribution.Draw(uniform);
      double before = 0;
      for (TokenId id = 0; id < got; ++id) before += distribution.Probability(id);
      CHECK(before <= uniform + 1e-6);
      CHECK(uniform <= before + distribution.Probability(got) + 1e-6);
      CHECK(distribution.Probability(got) > 0);
    }
  }
}

TEST_CASE("distribution: the first and the last share of 0 to 1 reach the first and last token") {
  const std::vector<float> logits = {0, 0, 0, 0};
  TokenDistribution distribution;
  distribution.Build(logits, 0, {});
  CHECK(distribution.Draw(0.0) == 0);
  CHECK(distribution.Draw(0.26) == 1);
  CHECK(distribution.Draw(0.9999999999999999) == 3);
}

}  // namespace
}  // namespace tandem
