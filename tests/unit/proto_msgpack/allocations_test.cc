// A steady decode step's message is encoded and decoded without touching the heap.

#include "proto_msgpack/codec.h"
#include "tests/support/heap/num_allocations.h"
#include "tests/support/wire_json.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

EngineCoreOutputs SteadyStep(TokenId token_id) {
  EngineCoreOutputs step;
  step.timestamp = 12.5;
  for (int i = 0; i < 256; ++i) {
    EngineCoreOutput& output = step.outputs.emplace_back();
    output.request_id = "chatcmpl-0123456789abcdef-" + std::to_string(i);
    output.new_token_ids = {token_id + i};
  }
  step.scheduler_stats.emplace().num_running_reqs = 256;
  return step;
}

TEST_CASE("codec: a steady decode step allocates nothing, on either side") {
  EncodedMessage message;
  EngineCoreOutputs decoded;
  Encode(SteadyStep(1), &message);
  REQUIRE(Decode(Views(message), &decoded).ok());

  const EngineCoreOutputs next = SteadyStep(100);
  int64_t before = NumAllocations();
  Encode(next, &message);
  const int64_t encoding = NumAllocations() - before;
  CHECK(encoding == 0);

  const std::vector<std::string_view> frames = Views(message);
  before = NumAllocations();
  const Status status = Decode(frames, &decoded);
  const int64_t decoding = NumAllocations() - before;
  CHECK(decoding == 0);
  REQUIRE(status.ok());
  CHECK(decoded == next);
}

}  // namespace
}  // namespace tandem::wire
