#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/random.h"
#include "engine_core/sampling/row_math.h"
#include "engine_core/sampling/sampler.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;

std::vector<float> Base64Floats(const std::string& text) {
  static const std::string kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kAlphabet.find(c));
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes.push_back(static_cast<char>(bits >> num_bits & 0xff));
    }
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

SamplingConfig ConfigOf(const Json& params) {
  SamplingConfig config;
  config.temperature = params.value("temperature", 1.0f);
  config.top_p = params.value("top_p", 1.0f);
  config.top_k = params.value("top_k", 0);
  config.min_p = params.value("min_p", 0.0f);
  config.repetition_penalty = params.value("repetition_penalty", 1.0f);
  config.frequency_penalty = params.value("frequency_penalty", 0.0f);
  config.presence_penalty = params.value("presence_penalty", 0.0f);
  config.min_tokens = params.value("min_tokens", 0);
  config.min_tokens_mask = params.value("stop_token_ids", std::vector<TokenId>{});
  config.allowed_token_ids = params.value("allowed_token_ids", std::vector<TokenId>{});
  config.bad_words = params.value("bad_words_token_ids", std::vector<std::vector<TokenId>>{});
  if (params.contains("logit_bias")) {
    for (const auto& [id, bias] : params["logit_bias"].items()) {
      config.logit_bias.push_back({std::stoi(id), bias.get<float>()});
    }
  }
  return config;
}

struct Case {
  int index = 0;
  SamplingConfig config;
  std::vector<TokenId> prompt_ids, output_ids;
  std::vector<float> logits, probs;
  TokenId argmax = 0;
  std::vector<TokenId> raw_top5_ids;
  std::vector<float> raw_top5_logprobs;
  TokenCounts counts;
};

std::vector<Case> ReadCases() {
  std::ifstream in(std::string(TANDEM_GOLDEN_DIR) + "/sampling/sampling.json");
  const Json json = Json::parse(in);
  std::vector<Case> cases;
  for (const Json& c : json["cases"]) {
    Case& one = cases.emplace_back();
    one.index = c["index"];
    one.config = ConfigOf(c["params"]);
    one.prompt_ids = c["prompt_ids"].get<std::vector<TokenId>>();
    one.output_ids = c["output_ids"].get<std::vector<TokenId>>();
    one.logits = Base64Floats(c["logits"]);
    one.probs = Base64Floats(c["probs"]);
    one.argmax = c["argmax"];
    one.raw_top5_ids = c["raw_top5"][0].get<std::vector<TokenId>>();
    one.raw_top5_logprobs = c["raw_top5"][1].get<std::vector<float>>();
    one.counts.Reset(json["vocab"], 1000);
    one.counts.AddPrompt(one.prompt_ids);
    for (const TokenId id : one.output_ids) one.counts.AddOutput(id);
  }
  return cases;
}

SampleInput InputOf(const Case& c, std::span<float> logits) {
  SampleInput input;
  input.logits = logits;
  input.config = &c.config;
  input.counts = &c.counts;
  input.output_ids = c.output_ids;
  return input;
}

TEST_CASE("sampling goldens: the final distribution of all cases") {
  const std::vector<Case> cases = ReadCases();
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
  for (const Case& c : ReadCases()) {
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

// Upper tail of the chi-square distribution, by Wilson and Hilferty's normal approximation.
double ChiSquareTail(double x, double degrees) {
  const double scale = 2.0 / (9 * degrees);
  const double z = (std::cbrt(x / degrees) - (1 - scale)) / std::sqrt(scale);
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

TEST_CASE("sampling goldens: draws follow the distribution (chi-square, fixed seeds)") {
  constexpr int kDraws = 20'000;
  SamplerScratch scratch;
  for (const Case& c : ReadCases()) {
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
    if (limits.is_greedy()) continue;
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
  }
}

}  // namespace
}  // namespace tandem
