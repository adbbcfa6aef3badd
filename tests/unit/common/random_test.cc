#include "common/random.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Test vectors of the Philox4x32-10 definition (Random123's kat_vectors: zero, all ones).
TEST_CASE("Philox4x32 gives its published test vectors") {
  CHECK(Philox4x32(0, 0, 0) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32(~0ull, ~0ull, ~0ull) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("UniformAt stays inside (0, 1), is repeatable and is uniform") {
  double sum = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = UniformAt(42, static_cast<uint64_t>(i));
    REQUIRE(u > 0);
    REQUIRE(u < 1);
    REQUIRE(u == UniformAt(42, static_cast<uint64_t>(i)));
    sum += u;
  }
  CHECK(sum / kDraws == Approx(0.5).margin(0.01));
  CHECK(UniformAt(42, 1) != UniformAt(43, 1));
  CHECK(UniformAt(42, 1, 0) != UniformAt(42, 1, 1));
}

}  // namespace
}  // namespace tandem
