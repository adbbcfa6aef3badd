#include "engine_core/executor/resolve_sampling.h"

#include <set>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

const SamplingLimits kLimits = {.vocab_size = 100, .max_logprobs = 20, .process_seed = 5};

TEST_CASE("resolve sampling: the wire's defaults sample from the whole distribution") {
  const auto config = ResolveSampling({}, "a", kLimits);
  REQUIRE(config.ok());
  CHECK(config->temperature == 1);
  CHECK(config->num_logprobs == -1);
  CHECK_FALSE(config->has_penalties());
  CHECK(config->min_tokens_mask.empty());
}

TEST_CASE("resolve sampling: a request's seed is its own, others get one from their id") {
  wire::SamplingParams seeded;
  seeded.seed = -3;
  CHECK(ResolveSampling(seeded, "a", kLimits)->seed == static_cast<uint64_t>(int64_t{-3}));
  CHECK(ResolveSampling(seeded, "b", kLimits)->seed == static_cast<uint64_t>(int64_t{-3}));
  std::set<uint64_t> seeds;
  for (int i = 0; i < 1000; ++i) {
    seeds.insert(ResolveSampling({}, "cmpl-" + std::to_string(i), kLimits)->seed);
  }
  CHECK(seeds.size() == 1000);
  SamplingLimits other = kLimits;
  other.process_seed = 6;
  CHECK(ResolveSampling({}, "a", kLimits)->seed == ResolveSampling({}, "a", kLimits)->seed);
  CHECK(ResolveSampling({}, "a", kLimits)->seed != ResolveSampling({}, "a", other)->seed);
}

TEST_CASE("resolve sampling: stop ids are masked only for min_tokens, and only real tokens") {
  wire::SamplingParams params;
  params.all_stop_token_ids = {2, 99, 100, -1};
  CHECK(ResolveSampling(params, "a", kLimits)->min_tokens_mask.empty());
  params.min_tokens = 3;
  CHECK(ResolveSampling(params, "a", kLimits)->min_tokens_mask == std::vector<TokenId>{2, 99});
}

TEST_CASE("resolve sampling: logprobs up to the limit, -1 is the vocabulary") {
  wire::SamplingParams params;
  params.logprobs = 20;
  CHECK(ResolveSampling(params, "a", kLimits)->num_logprobs == 20);
  params.logprobs = 21;
  CHECK_THAT(ResolveSampling(params, "a", kLimits).status().message(),
             Contains("logprobs is 21") && Contains("at most 20"));
  params.logprobs = -1;
  CHECK_FALSE(ResolveSampling(params, "a", kLimits).ok());
  SamplingLimits all = kLimits;
  all.max_logprobs = -1;
  CHECK(ResolveSampling(params, "a", all)->num_logprobs == 100);
}

TEST_CASE("resolve sampling: empty bad words are dropped") {
  wire::SamplingParams params;
  params.bad_words_token_ids = {{}, {1, 2}};
  CHECK(ResolveSampling(params, "a", kLimits)->bad_words.size() == 1);
}

}  // namespace
}  // namespace tandem
