// What the wire costs per message: a decode step of range(0) requests, one token each, with stats;
// and a request of 1000 prompt tokens. Prints the time per message; divide it by the requests.

#include <benchmark/benchmark.h>

#include "proto_msgpack/codec.h"
#include "tests/bench/wire_messages.h"

namespace tandem::wire {
namespace {

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
