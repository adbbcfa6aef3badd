// What a decode step costs beside the model: schedule, update, records for the clients. The load is
// tests/simulation/decode_load.h; the executor's share is a loop over the batch that writes tokens.

#include <benchmark/benchmark.h>

#include "tests/simulation/decode_load.h"

namespace tandem {
namespace {

void DecodeStep(benchmark::State& state) {
  DecodeLoad load({.num_requests = static_cast<int32_t>(state.range(0)),
                   .prompt_tokens = 100,
                   .block_size = static_cast<int32_t>(state.range(1)),
                   .enable_prefix_caching = state.range(2) != 0});
  load.Prefill();
  for (auto _ : state) load.Step();
  if (load.num_running() != static_cast<size_t>(state.range(0))) state.SkipWithError("not steady");
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(DecodeStep)
    ->ArgNames({"running", "block_size", "caching"})
    ->Args({256, 32, 1})
    ->Args({256, 16, 1})
    ->Args({256, 32, 0})
    ->Args({1, 32, 1})
    ->Args({1024, 32, 1})
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(20000);

}  // namespace
}  // namespace tandem
