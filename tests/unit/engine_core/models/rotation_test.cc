#include "engine_core/models/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// In ulp of the exact number.
long double ErrorOf(float number, long double exact) {
  const int exponent = std::max(-126, exact == 0 ? -126 : std::ilogb(exact));
  return std::abs(number - exact) / std::ldexp(1.0L, exponent - 23);
}

TEST_CASE("rotation: cos and sin are the nearest floats") {
  std::mt19937 engine(1);
  long double worst = 0;
  for (uint32_t exponent = 0; exponent < 127 + 28; ++exponent) {
    for (int i = 0; i < 500; ++i) {
      const uint32_t sign = i % 2 == 0 ? 0 : 0x80000000u;
      const uint32_t mantissa = static_cast<uint32_t>(engine()) & 0x7fffff;
      const auto angle = std::bit_cast<float>(sign | exponent << 23 | mantissa);
      const Rotation rotation = RotationBy(angle);
      worst = std::max(worst, ErrorOf(rotation.cos, std::cos(static_cast<long double>(angle))));
      worst = std::max(worst, ErrorOf(rotation.sin, std::sin(static_cast<long double>(angle))));
    }
  }
  CHECK(worst < 0.50000002L);
}

TEST_CASE("rotation: turns, signs and numbers that are none") {
  CHECK(RotationBy(0).cos == 1);
  CHECK(RotationBy(0).sin == 0);
  for (const float angle : {0.3f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 131071.0f, 1e-40f}) {
    CHECK(RotationBy(-angle).cos == RotationBy(angle).cos);
    CHECK(RotationBy(-angle).sin == -RotationBy(angle).sin);
  }
  for (const float none : {NAN, INFINITY, -INFINITY}) {
    CHECK(std::isnan(RotationBy(none).cos));
    CHECK(std::isnan(RotationBy(none).sin));
  }
}

// So that another compiler, library or processor that changes a bit is found.
TEST_CASE("rotation: the bits are those of every host") {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (uint32_t i = 0; i < 200'000; ++i) {
    const Rotation rotation = RotationBy(static_cast<float>(i) * 0.7f);
    for (const float number : {rotation.cos, rotation.sin}) {
      hash = (hash ^ std::bit_cast<uint32_t>(number)) * 1099511628211u;
    }
  }
  CHECK(hash == 4137267332762951745u);
}

}  // namespace
}  // namespace tandem
