// What the API costs the frontend apart from HTTP: turning a body into engine requests, and a token
// into an event. Run: build/release/bench/bench_api.

#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "tests/support/api_model.h"

namespace tandem {
namespace {

void StreamToken(benchmark::State& state, const std::string& path, const std::string& body) {
  const ApiModel model;
  const auto prepared = model.Prepare(path, body);
  std::string events;
  const auto writer = prepared.value().MakeWriter(&events);
  OutputProcessor processor(model.tokenizer(), prepared.value().output,
                            prepared.value().processed.requests[0].prompt_token_ids);
  const auto words = model.tokenizer().Encode("The quick brown fox and 7 more.\n", false).value();
  wire::EngineCoreOutput output;
  output.request_id = "r";
  size_t i = 0;
  for (auto _ : state) {
    output.new_token_ids.assign(1, words[i++ % words.size()]);
    writer->WriteDelta(0, processor.Process(output), {});
    benchmark::DoNotOptimize(events.data());
    events.clear();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK_CAPTURE(StreamToken, chat, "/v1/chat/completions",
                  R"({"messages":[{"role":"user","content":"x"}],"stream":true})");
BENCHMARK_CAPTURE(StreamToken, completion, "/v1/completions", R"({"prompt":"x","stream":true})");
BENCHMARK_CAPTURE(StreamToken, completion_with_stop_strings, "/v1/completions",
                  R"({"prompt":"x","stream":true,"stop":["quicker","\n\n","7x","zebra"]})");

void PrepareChat(benchmark::State& state) {
  const ApiModel model;
  const std::string body = R"({"model":"m","messages":[{"role":"user","content":")" +
                           std::string(static_cast<size_t>(state.range(0)), 'a') +
                           R"("}],"temperature":0.7,"max_tokens":100,"stream":true,"stop":["x"]})";
  for (auto _ : state) benchmark::DoNotOptimize(model.Prepare("/v1/chat/completions", body));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
}
BENCHMARK(PrepareChat)->Arg(100)->Arg(4000);

}  // namespace
}  // namespace tandem
