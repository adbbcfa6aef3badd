// A steady decode step allocates nothing.

#include "engine_core/engine_core.h"
#include "tests/simulation/decode_load.h"
#include "tests/support/heap/num_allocations.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("Steady decode: 256 running requests, 200 steps, no heap allocation") {
  const bool async = GENERATE(false, true);
  const size_t recorded = GENERATE(size_t{0}, size_t{32} << 20);
  CAPTURE(async, recorded);
  DecodeLoad load({.num_requests = 256,
                   .prompt_tokens = 100,
                   .async_scheduling = async,
                   .flight_recorder_bytes = recorded});
  load.Prefill();
  for (int i = 0; i < 40; ++i) load.Step();  // vectors and recycled messages reach their final size
  const int64_t before = NumAllocations();
  for (int i = 0; i < 200; ++i) load.Step();
  CHECK(NumAllocations() - before == 0);
  CHECK(before > 0);
  CHECK(load.num_running() == 256);
  CHECK(load.num_output_tokens() > 256 * 200);
  CHECK((load.num_recorded_bytes() > 200 * 256) == (recorded > 0));
}

}  // namespace
}  // namespace tandem
