// A steady decode step allocates nothing. operator new counts in this program.

#include <cstdlib>
#include <new>

#include "engine_core/engine_core.h"
#include "tests/simulation/decode_load.h"

#include <catch2/catch.hpp>

namespace {
int64_t num_allocations = 0;
}  // namespace

void* operator new(size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tandem {
namespace {

TEST_CASE("Steady decode: 256 running requests, 200 steps, no heap allocation") {
  DecodeLoad load({.num_requests = 256, .prompt_tokens = 100});
  load.Prefill();
  for (int i = 0; i < 40; ++i) load.Step();  // vectors and recycled messages reach their size
  const int64_t before = num_allocations;
  for (int i = 0; i < 200; ++i) load.Step();
  CHECK(num_allocations - before == 0);
  CHECK(before > 0);
  CHECK(load.num_running() == 256);
  CHECK(load.num_output_tokens() > 256 * 200);
}

}  // namespace
}  // namespace tandem
