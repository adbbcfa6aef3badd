// What a decode step costs apart from the model: schedule, update, records for the clients. The
// load is tests/simulation/decode_load.h; its executor only writes tokens in a loop over the batch.
// p50 and p99 are wall-clock microseconds of single steps, so a busy machine raises them.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/clock.h"
#include "engine_core/kv_cache/block_hash.h"
#include "tests/simulation/decode_load.h"

namespace tandem {
namespace {

void DecodeStep(benchmark::State& state) {
  DecodeLoad load({.num_requests = static_cast<int32_t>(state.range(0)),
                   .prompt_tokens = 100,
                   .block_size = static_cast<int32_t>(state.range(1)),
                   .enable_prefix_caching = state.range(2) != 0,
                   .flight_recorder_bytes = static_cast<size_t>(state.range(3)) << 20});
  load.Prefill();
  const SystemClock clock;
  std::vector<double> step_us;
  step_us.reserve(20000);
  for (auto _ : state) {
    const double start = clock.Monotonic();
    load.Step();
    step_us.push_back((clock.Monotonic() - start) * 1e6);
  }
  if (load.num_running() != static_cast<size_t>(state.range(0))) state.SkipWithError("not steady");
  std::sort(step_us.begin(), step_us.end());
  state.counters["p50_us"] = step_us[step_us.size() / 2];
  state.counters["p99_us"] = step_us[step_us.size() * 99 / 100];
}
BENCHMARK(DecodeStep)
    ->ArgNames({"running", "block_size", "caching", "recorder_mib"})
    ->Args({256, 32, 1, 0})
    ->Args({256, 32, 1, 32})
    ->Args({256, 16, 1, 0})
    ->Args({256, 32, 0, 0})
    ->Args({1, 32, 1, 0})
    ->Args({1, 32, 1, 32})
    ->Args({1024, 32, 1, 0})
    ->Args({1024, 32, 1, 32})
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(20000);

// Per block. The blocks of a prompt are hashed once, when it arrives.
void HashBlock(benchmark::State& state) {
  const auto block_size = static_cast<int32_t>(state.range(0));
  BlockHasher hasher(block_size,
                     state.range(1) != 0 ? HashAlgorithm::kXxhashCbor : HashAlgorithm::kSha256Cbor);
  std::vector<TokenId> tokens(static_cast<size_t>(block_size));
  std::iota(tokens.begin(), tokens.end(), 30000);
  std::vector<BlockHash> hashes;
  for (auto _ : state) {
    hashes.clear();
    hasher.Extend(tokens, {}, &hashes);
    benchmark::DoNotOptimize(hashes.data());
  }
}
BENCHMARK(HashBlock)->ArgNames({"block_size", "xxhash"})->ArgsProduct({{16, 32}, {0, 1}});

}  // namespace
}  // namespace tandem
