// What the wire costs per message: a decode step of range(0) requests, one token each, with stats;
// and a request of 1000 prompt tokens. Prints the time per message; divide it by the requests.

#include <benchmark/benchmark.h>

#include "proto_msgpack/codec.h"

namespace tandem::wire {
namespace {

EngineCoreOutputs Step(int64_t num_requests) {
  EngineCoreOutputs step;
  step.timestamp = 12.5;
  for (int64_t i = 0; i < num_requests; ++i) {
    EngineCoreOutput& output = step.outputs.emplace_back();
    output.request_id = "chatcmpl-0123456789abcdef-" + std::to_string(i);
    output.new_token_ids = {static_cast<TokenId>(1000 + i)};
  }
  step.scheduler_stats.emplace().num_running_reqs = num_requests;
  return step;
}

EngineCoreRequest LongRequest() {
  EngineCoreRequest request;
  request.request_id = "cmpl-0123456789abcdef";
  for (TokenId i = 0; i < 1000; ++i) request.prompt_token_ids.push_back(i * 97);
  request.sampling_params.temperature = 0.7;
  request.sampling_params.max_tokens = 100;
  return request;
}

void EncodeStep(benchmark::State& state) {
  const EngineCoreOutputs step = Step(state.range(0));
  EncodedMessage message;
  for (auto _ : state) Encode(step, &message);
  state.counters["bytes"] = static_cast<double>(message.body.size());
}
BENCHMARK(EncodeStep)->Arg(1)->Arg(256);

void DecodeStep(benchmark::State& state) {
  EncodedMessage message;
  Encode(Step(state.range(0)), &message);
  const std::string_view frames[] = {message.body};
  EngineCoreOutputs outputs;
  for (auto _ : state) {
    if (!Decode(frames, &outputs).ok()) state.SkipWithError("not decoded");
  }
}
BENCHMARK(DecodeStep)->Arg(1)->Arg(256);

void EncodeRequest(benchmark::State& state) {
  const EngineCoreRequest request = LongRequest();
  EncodedMessage message;
  for (auto _ : state) Encode(request, &message);
}
BENCHMARK(EncodeRequest);

void DecodeRequest(benchmark::State& state) {
  EncodedMessage message;
  Encode(LongRequest(), &message);
  const std::string_view frames[] = {message.body};
  for (auto _ : state) {
    if (!DecodeInput(0, frames).ok()) state.SkipWithError("not decoded");
  }
}
BENCHMARK(DecodeRequest);

}  // namespace
}  // namespace tandem::wire
