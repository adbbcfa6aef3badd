// CPU time to sample one token from one row: the passes over the vocabulary.
// Run: build/release/bench/bench_sampler

#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "common/random.h"
#include "engine_core/sampling/sampler.h"

namespace tandem {
namespace {

// Normally distributed logits with a few likely tokens, as models produce them.
std::vector<float> MakeRow(size_t size) {
  std::vector<float> row(size);
  for (size_t i = 0; i < size; ++i) {
    const double radius = std::sqrt(-2 * std::log(UniformAt(1, i)));
    row[i] = static_cast<float>(2 * radius * std::cos(6.283185307 * UniformAt(2, i)));
  }
  for (size_t i = 0; i < 20; ++i) row[(i * 7919) % size] += 10 - 0.4f * static_cast<float>(i);
  return row;
}

void Run(benchmark::State& state, const SamplingConfig& config,
         std::span<const int32_t> token_mask = {}) {
  const std::vector<float> original = MakeRow(static_cast<size_t>(state.range(0)));
  std::vector<float> row(original.size());
  std::vector<TokenId> ids(static_cast<size_t>(config.num_logprobs + 1));
  std::vector<float> logprobs(ids.size());
  int64_t rank = 0;
  SamplerScratch scratch;
  scratch.Reserve(row.size());
  SampleInput input;
  input.logits = row;
  input.config = &config;
  input.token_mask = token_mask;
  input.logprobs = {ids, logprobs, &rank};
  for (auto _ : state) {
    row = original;  // a copy costs what reading the head's output costs
    ++input.position;
    benchmark::DoNotOptimize(SampleToken(input, &scratch).token_id);
  }
}

void Greedy(benchmark::State& state) {
  SamplingConfig config;
  config.temperature = 0;
  Run(state, config);
}
void Temperature(benchmark::State& state) { Run(state, {}); }
void TopP(benchmark::State& state) {
  SamplingConfig config;
  config.top_p = 0.9f;
  Run(state, config);
}
void TopKTopP(benchmark::State& state) {
  SamplingConfig config;
  config.temperature = 0.7f;
  config.top_k = 50;
  config.top_p = 0.9f;
  Run(state, config);
}
void GreedyWithFiveLogprobs(benchmark::State& state) {
  SamplingConfig config;
  config.temperature = 0;
  config.num_logprobs = 5;
  Run(state, config);
}

// Masks of a grammar: all tokens, and one of 64.
void GreedyUnderAllOnes(benchmark::State& state) {
  SamplingConfig config;
  config.temperature = 0;
  const std::vector<int32_t> mask(static_cast<size_t>(TokenMaskWords(state.range(0))), -1);
  Run(state, config, mask);
}
void TemperatureUnderAllOnes(benchmark::State& state) {
  const std::vector<int32_t> mask(static_cast<size_t>(TokenMaskWords(state.range(0))), -1);
  Run(state, {}, mask);
}
void TemperatureUnderMask(benchmark::State& state) {
  std::vector<int32_t> mask(static_cast<size_t>(TokenMaskWords(state.range(0))));
  for (size_t i = 0; i < mask.size(); i += 2) mask[i] = 1 << (i % 31);
  Run(state, {}, mask);
}

BENCHMARK(Greedy)->Arg(3072)->Arg(151936);
BENCHMARK(Temperature)->Arg(3072)->Arg(151936);
BENCHMARK(TopP)->Arg(3072)->Arg(151936);
BENCHMARK(TopKTopP)->Arg(3072)->Arg(151936);
BENCHMARK(GreedyWithFiveLogprobs)->Arg(3072)->Arg(151936);
BENCHMARK(GreedyUnderAllOnes)->Arg(3072)->Arg(151936);
BENCHMARK(TemperatureUnderAllOnes)->Arg(3072)->Arg(151936);
BENCHMARK(TemperatureUnderMask)->Arg(3072)->Arg(151936);

}  // namespace
}  // namespace tandem
