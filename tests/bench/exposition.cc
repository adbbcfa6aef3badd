// The text of /metrics: ours against prometheus-cpp's serializer, over the registry of a frontend
// of range(0) engines. The two differ in form (see frontend/metrics/exposition.h); this shows the
// cost.

#include <benchmark/benchmark.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "frontend/metrics/exposition.h"
#include "frontend/metrics/metrics.h"

namespace tandem {
namespace {

std::vector<prometheus::MetricFamily> Families(int64_t num_engines) {
  prometheus::Registry registry;
  const BucketFamilies buckets;
  for (int64_t i = 0; i < num_engines; ++i) {
    EngineMetrics engine({&registry, {{"engine", std::to_string(i)}, {"model_name", "model"}}},
                         buckets);
    for (int sample = 1; sample < 1000; ++sample) {
      engine.time_to_first_token.Observe(sample * 0.0123);
      engine.inter_token_latency.Observe(sample * 0.000456);
      engine.generation_tokens.Increment(sample);
    }
  }
  FrontendMetrics frontend({&registry, {{"model_name", "model"}}});
  return registry.Collect();
}

void Ours(benchmark::State& state) {
  const auto families = Families(state.range(0));
  size_t num_bytes = 0;
  for (auto _ : state) num_bytes = Exposition(families).size();
  state.counters["bytes"] = static_cast<double>(num_bytes);
}
BENCHMARK(Ours)->Arg(1)->Arg(8)->Unit(benchmark::kMicrosecond);

void Library(benchmark::State& state) {
  const auto families = Families(state.range(0));
  const prometheus::TextSerializer serializer;
  size_t num_bytes = 0;
  for (auto _ : state) num_bytes = serializer.Serialize(families).size();
  state.counters["bytes"] = static_cast<double>(num_bytes);
}
BENCHMARK(Library)->Arg(1)->Arg(8)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tandem
