// A steady decode step's message is encoded and decoded without touching the heap.

#include <atomic>
#include <cstdlib>
#include <new>

#include "proto_msgpack/codec.h"
#include "tests/support/wire_json.h"

#include <catch2/catch.hpp>

namespace {
std::atomic<int64_t> num_allocations{0};
}  // namespace

void* operator new(size_t size) {
  ++num_allocations;
  return std::malloc(size);
}
void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return operator new(size);
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, size_t /*size*/) noexcept { std::free(pointer); }

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
  int64_t before = num_allocations;
  Encode(next, &message);
  const int64_t encoding = num_allocations - before;
  CHECK(encoding == 0);

  const std::vector<std::string_view> frames = Views(message);
  before = num_allocations;
  const Status status = Decode(frames, &decoded);
  const int64_t decoding = num_allocations - before;
  CHECK(decoding == 0);
  REQUIRE(status.ok());
  CHECK(decoded == next);
}

}  // namespace
}  // namespace tandem::wire
