#include "kernels/tensor.h"

#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("bfloat16 rounds to nearest, ties to even, and keeps NaN and infinity") {
  CHECK(ToFloat(ToBf16(1.0f)) == 1.0f);
  CHECK(ToBf16(std::bit_cast<float>(0x3f808000u)).bits == 0x3f80);  // tie, even below
  CHECK(ToBf16(std::bit_cast<float>(0x3f818000u)).bits == 0x3f82);  // tie, even above
  CHECK(ToBf16(std::bit_cast<float>(0x3f808001u)).bits == 0x3f81);
  CHECK(ToBf16(std::numeric_limits<float>::max()).bits == 0x7f80);  // overflows to infinity
  CHECK(std::isnan(ToFloat(ToBf16(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isnan(ToFloat(ToBf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("float16 converts exactly: normal, denormal, zero, infinity") {
  CHECK(HalfToFloat(0x3c00) == 1.0f);
  CHECK(HalfToFloat(0xc500) == -5.0f);
  CHECK(HalfToFloat(0x0001) == std::ldexp(1.0f, -24));
  CHECK(HalfToFloat(0x7bff) == 65504.0f);
  CHECK(std::signbit(HalfToFloat(0x8000)));
  CHECK(std::isinf(HalfToFloat(0x7c00)));
  CHECK(std::isnan(HalfToFloat(0x7c01)));
}

TEST_CASE("a tensor's rows and columns are views into it") {
  std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const Tensor x(values.data(), DType::kF32, {2, 3});
  CHECK(x.Rows(1, 1).Data<float>()[0] == 3);
  const Tensor right = x.Columns(1, 2);
  CHECK(right.Row<float>(1)[0] == 4);
  CHECK_FALSE(right.IsContiguous());

  std::vector<float> copy(4);
  ConvertTensor(Tensor(copy.data(), DType::kF32, {2, 2}), right);
  CHECK(copy == std::vector<float>{1, 2, 4, 5});
}

}  // namespace tandem
