// A steady decode step allocates nothing.

#include "engine_core/engine_core.h"
#include "tests/simulation/decode_load.h"
#include "tests/support/heap/num_allocations.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("Steady decode: 256 running requests, 200 steps, no heap allocation") {
  const bool async = GENERATE(false, true);
  CAPTURE(async);
  DecodeLoad load({.num_requests = 256, .prompt_tokens = 100, .async_scheduling = async});
  load.Prefill();
  for (int i = 0; i < 40; ++i) load.Step();  // vectors and recycled messages reach their final size
  const int64_t before = NumAllocations();
  for (int i = 0; i < 200; ++i) load.Step();
  CHECK(NumAllocations() - before == 0);
  CHECK(before > 0);
  CHECK(load.num_running() == 256);
  CHECK(load.num_output_tokens() > 256 * 200);
}

}  // namespace
}  // namespace tandem
