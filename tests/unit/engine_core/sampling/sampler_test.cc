#include "engine_core/sampling/sampler.h"

#include <cmath>
#include <limits>

#include "common/random.h"
#include "engine_core/sampling/row_math.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

SampleResult Sample(std::vector<float> logits, const SamplingConfig& config, int64_t position = 0,
                    std::span<const TokenId> outputs = {}) {
  SamplerScratch scratch;
  SampleInput input;
  input.logits = logits;
  input.config = &config;
  input.output_ids = outputs;
  input.position = position;
  return SampleToken(input, &scratch);
}

SamplingConfig Greedy() {
  SamplingConfig config;
  config.temperature = 0;
  return config;
}

std::vector<float> RandomRow(uint64_t seed, size_t size) {
  std::vector<float> row(size);
  for (size_t i = 0; i < size; ++i) row[i] = static_cast<float>(8 * UniformAt(seed, i) - 4);
  return row;
}

TEST_CASE("sampler: greedy takes the lowest id among equals, anywhere in the row") {
  for (size_t size : {1u, 2u, 15u, 16u, 17u, 40u}) {
    std::vector<float> row(size, 1.0f);
    CHECK(Sample(row, Greedy()).token_id == 0);
    row.back() = 2.0f;
    CHECK(Sample(row, Greedy()).token_id == static_cast<TokenId>(size - 1));
  }
}

TEST_CASE("sampler: a temperature just below the bound is greedy, just above it is not") {
  SamplingConfig config;
  config.temperature = 0.9e-5f;
  CHECK(config.is_greedy());
  config.temperature = 1.1e-5f;
  CHECK_FALSE(config.is_greedy());
  CHECK(Sample({0, 1, 0}, config).token_id == 1);
}

TEST_CASE("sampler: NaN and infinite logits are an error that counts them") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const SamplingConfig& config : {Greedy(), SamplingConfig{}}) {
    const SampleResult result = Sample({0, nan, inf, -inf, 1}, config);
    CHECK(result.status.code() == StatusCode::kInternal);
    CHECK(result.num_nans == 3);
    CHECK_FALSE(Sample(std::vector<float>(40, nan), config).status.ok());
  }
}

TEST_CASE("sampler: a row in which every token is banned is an error") {
  SamplingConfig config;
  config.allowed_token_ids = {1};
  config.bad_words = {{1}};
  const SampleResult result = Sample({0, 0, 0}, config);
  CHECK(result.status.code() == StatusCode::kInvalidArgument);
}

TEST_CASE("sampler: a bad word of two ids is banned only after its first") {
  SamplingConfig config = Greedy();
  config.bad_words = {{7, 1}};
  CHECK(Sample({0, 5, 1}, config).token_id == 1);
  const std::vector<TokenId> after = {3, 7}, other = {7, 3};
  CHECK(Sample({0, 5, 1}, config, 0, after).token_id == 2);
  CHECK(Sample({0, 5, 1}, config, 0, other).token_id == 1);
}

TEST_CASE("sampler: min_tokens bans stop ids until enough were output") {
  SamplingConfig config = Greedy();
  config.min_tokens = 2;
  config.min_tokens_mask = {1};
  const std::vector<TokenId> one = {0}, two = {0, 0};
  CHECK(Sample({0, 5, 1}, config, 0, one).token_id == 2);
  CHECK(Sample({0, 5, 1}, config, 0, two).token_id == 1);
}

TEST_CASE("sampler: a draw depends on seed and position only") {
  SamplingConfig config;
  config.seed = 42;
  const std::vector<float> row = RandomRow(1, 300);
  std::vector<TokenId> first;
  for (int64_t p = 0; p < 50; ++p) first.push_back(Sample(row, config, p).token_id);
  for (int64_t p = 49; p >= 0; --p) {
    CHECK(Sample(row, config, p).token_id == first[static_cast<size_t>(p)]);
  }
  config.seed = 43;
  int different = 0;
  for (int64_t p = 0; p < 50; ++p) {
    different += Sample(row, config, p).token_id != first[static_cast<size_t>(p)];
  }
  CHECK(different > 30);
}

TEST_CASE("sampler: scratch of another row leaves no trace") {
  SamplerScratch used, fresh;
  SamplingConfig config;
  config.top_p = 0.8f;
  config.top_k = 50;
  config.num_logprobs = 3;
  config.allowed_token_ids = {1, 2, 3, 50, 99};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    config.seed = seed;
    TokenId tokens[2];
    for (SamplerScratch* scratch : {&used, &fresh}) {
      std::vector<float> row = RandomRow(seed, 100 + 37 * seed);
      TokenId ids[4];
      float logprobs[4];
      int64_t rank;
      SampleInput input;
      input.logits = row;
      input.config = &config;
      input.logprobs = {ids, logprobs, &rank};
      tokens[scratch == &used ? 0 : 1] = SampleToken(input, scratch).token_id;
    }
    CHECK(tokens[0] == tokens[1]);
    fresh = SamplerScratch();
  }
}

TEST_CASE("logprobs: chosen first, then the best in order, and the rank counts equals") {
  const std::vector<float> row = {1, 3, 2, 3, 0};
  TokenId ids[4];
  float logprobs[4];
  int64_t rank = 0;
  std::vector<TokenId> heap;
  FillTopLogprobs(row, true, 2, {ids, logprobs, &rank}, &heap);
  CHECK(ids[0] == 2);
  CHECK(ids[1] == 1);
  CHECK(ids[2] == 3);
  CHECK(ids[3] == 2);
  CHECK(rank == 3);
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(x));
  CHECK(logprobs[1] == Approx(3 - std::log(sum)).margin(1e-6));
  FillTopLogprobs(row, true, 3, {std::span(ids).first(1), std::span(logprobs).first(1), &rank},
                  &heap);
  CHECK(rank == 2);
}

TEST_CASE("sampler: a token that is given is scored as if it were drawn") {
  const bool is_greedy = GENERATE(true, false);
  CAPTURE(is_greedy);
  SamplingConfig config = Greedy();
  if (!is_greedy) config.temperature = 0.5f;
  config.num_logprobs = 0;
  std::vector<float> row = {1, 3, 2, 3, 0};
  TokenId id = 0;
  float logprob = 0;
  int64_t rank = 0;
  SamplerScratch scratch;
  SampleInput input;
  input.logits = row;
  input.config = &config;
  input.given_token = 2;
  input.logprobs = {std::span(&id, 1), std::span(&logprob, 1), &rank};
  CHECK(SampleToken(input, &scratch).token_id == 2);
  CHECK(id == 2);
  CHECK(rank == 3);
  double sum = 0;
  for (const float x : {1, 3, 2, 3, 0}) sum += std::exp(static_cast<double>(x));
  CHECK(logprob == Approx(2 - std::log(sum)).margin(1e-6));
}

TEST_CASE("logprobs: requested ids instead of the top ones, in their order") {
  SamplingConfig config = Greedy();
  config.logprob_token_ids = {4, 0};
  config.num_logprobs = 2;
  std::vector<float> row = {1, 3, 2, 3, 0};
  TokenId ids[3];
  float logprobs[3];
  int64_t rank = 0;
  SamplerScratch scratch;
  SampleInput input;
  input.logits = row;
  input.config = &config;
  input.logprobs = {ids, logprobs, &rank};
  CHECK(SampleToken(input, &scratch).token_id == 1);
  CHECK(ids[0] == 1);
  CHECK(ids[1] == 4);
  CHECK(ids[2] == 0);
  CHECK(logprobs[0] - logprobs[1] == Approx(3));
  CHECK(logprobs[2] - logprobs[1] == Approx(1));
}

TEST_CASE("logprobs: scores of tokens, and of what is none") {
  const std::vector<float> row = {1, 3, 2, 3, 0};
  const std::vector<TokenId> ids = {4, -1, 1};
  float scores[3];
  FillScoresOf(row, /*normalized=*/false, ids, scores);
  CHECK(scores[0] == 0);
  CHECK(scores[1] == -std::numeric_limits<float>::infinity());
  CHECK(scores[2] == 3);
  FillScoresOf(row, /*normalized=*/true, ids, scores);
  CHECK(scores[2] - scores[0] == Approx(3));
  CHECK(scores[0] == Approx(-std::log(1 + std::exp(1) + std::exp(2) + 2 * std::exp(3))));
}

TEST_CASE("logprobs: a top_k keeps tokens that are too unlikely to be sampled") {
  SamplingConfig config;
  config.temperature = 0.01f;
  config.top_k = 3;
  config.num_logprobs = 4;
  config.logprobs_mode = LogprobsMode::kProcessedLogits;
  std::vector<float> row = {-9, 5, 0, 3};
  TokenId ids[5];
  float reported[5];
  int64_t rank = 0;
  SamplerScratch scratch;
  SampleInput input;
  input.logits = row;
  input.config = &config;
  input.logprobs = {ids, reported, &rank};
  CHECK(SampleToken(input, &scratch).token_id == 1);
  CHECK(std::vector<TokenId>(ids, ids + 5) == std::vector<TokenId>{1, 1, 3, 2, 0});
  CHECK(reported[0] == Approx(500));
  CHECK(reported[2] == Approx(300));
  CHECK(reported[3] == 0);
  CHECK(reported[4] == -std::numeric_limits<float>::infinity());
}

TEST_CASE("penalties: a reset for another request keeps capacity, not counts") {
  TokenCounts counts;
  counts.Reset(10, 100);
  const std::vector<TokenId> prompt = {1, 1, 2};
  counts.AddPrompt(prompt);
  counts.AddOutput(2);
  counts.AddOutput(2);
  counts.AddOutput(3);
  std::vector<float> row(10, 1.0f);
  row[3] = -1;
  counts.Apply(2, 0.5f, 0.25f, row);
  CHECK(row[0] == 1.0f);
  CHECK(row[1] == 0.5f);                  // in the prompt only: repetition
  CHECK(row[2] == 0.5f - 1.0f - 0.25f);   // twice in the output
  CHECK(row[3] == -2.0f - 0.5f - 0.25f);  // negative logits are multiplied
  counts.Reset(10, 100);
  std::vector<float> untouched(10, 1.0f);
  counts.Apply(2, 0.5f, 0.25f, untouched);
  CHECK(untouched == std::vector<float>(10, 1.0f));
}

}  // namespace
}  // namespace tandem
