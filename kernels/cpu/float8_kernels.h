#pragma once

// e4m3 (kernels/float8.h) as floats, on the vec_*.h of the including isa_*.cc.

#include <cstdint>

namespace tandem {
namespace {

// Of 16 codes that are no NaN. A product makes up for the bias, as in Float8ToFloat.
inline Vec LoadFiniteFloat8s(const uint8_t* codes) {
  const Units units = AndUnits(ShiftLeft(SignExtendBytes(codes), 20), 0x87f00000);
  return Mul(FloatsOf(units), Set1(0x1p120f));
}

// Of any 16 codes. NaN would be 480, the largest number is 448.
inline Vec LoadFloat8s(const uint8_t* codes) {
  const Vec number = LoadFiniteFloat8s(codes), nan = Set1(__builtin_nanf(""));
  return SelectLess(number, Set1(464), SelectLess(Set1(-464), number, number, nan), nan);
}

}  // namespace
}  // namespace tandem
