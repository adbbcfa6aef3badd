#pragma once

// e4m3 (kernels/float8.h) as floats, on the vec_*.h of the including isa_*.cc.

#include <cstdint>

namespace tandem {
namespace {

// Of 16 codes that are no NaN. A product makes up for the bias, as in Float8ToFloat.
inline Vec LoadFiniteFloat8s(const uint8_t* codes) {
  const Units units = WidenBytes(codes);
  const Vec magnitude = Mul(FloatsOf(ShiftLeft(AndUnits(units, 0x7f), 20)), Set1(0x1p120f));
  return FloatsOf(OrUnits(UnitsOf(magnitude), ShiftLeft(AndUnits(units, 0x80), 24)));
}

}  // namespace
}  // namespace tandem
