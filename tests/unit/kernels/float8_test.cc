#include "kernels/float8.h"

#include <cmath>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// The format's definition.
float Defined(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double number =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return static_cast<float>(code < 128 ? number : -number);
}

TEST_CASE("float8: every code is the number that the format says") {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    CAPTURE(code);
    if ((code & 127) == 127) {
      CHECK(IsFloat8Nan(byte));
      CHECK(std::isnan(Float8ToFloat(byte)));
      continue;
    }
    CHECK(Float8ToFloat(byte) == Defined(code));
    CHECK(std::signbit(Float8ToFloat(byte)) == (code >= 128));
    CHECK(FloatToFloat8(Defined(code)) == (code == 128 ? 128 : code));
  }
}

TEST_CASE("float8: numbers go to the nearest code, ties to the even one") {
  for (int code = 0; code < 126; ++code) {
    CAPTURE(code);
    const float low = Defined(code), high = Defined(code + 1), middle = (low + high) / 2;
    CHECK(FloatToFloat8(std::nextafter(middle, low)) == code);
    CHECK(FloatToFloat8(std::nextafter(middle, high)) == code + 1);
    CHECK(FloatToFloat8(middle) == code + code % 2);
    CHECK(FloatToFloat8(-middle) == ((code + code % 2) | 128));
  }
  CHECK(FloatToFloat8(1e9f) == 126);
  CHECK(FloatToFloat8(-INFINITY) == 254);
  CHECK(FloatToFloat8(1e-30f) == 0);
  CHECK(IsFloat8Nan(FloatToFloat8(NAN)));
}

}  // namespace
}  // namespace tandem
