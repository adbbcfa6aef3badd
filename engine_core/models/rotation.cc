#include "engine_core/models/rotation.h"

#include <bit>
#include <cstdint>
#include <numbers>

namespace tandem {
namespace {

// Taylor's series for |x| <= pi / 4, both within 1e-16.
double SinOf(double x) {
  const double square = x * x;
  double sum = -1.0 / 1307674368000;  // 15!
  sum = sum * square + 1.0 / 6227020800;
  sum = sum * square - 1.0 / 39916800;
  sum = sum * square + 1.0 / 362880;
  sum = sum * square - 1.0 / 5040;
  sum = sum * square + 1.0 / 120;
  sum = sum * square - 1.0 / 6;
  return x + x * square * sum;
}
double CosOf(double x) {
  const double square = x * x;
  double sum = 1.0 / 20922789888000;  // 16!
  sum = sum * square - 1.0 / 87178291200;
  sum = sum * square + 1.0 / 479001600;
  sum = sum * square - 1.0 / 3628800;
  sum = sum * square + 1.0 / 40320;
  sum = sum * square - 1.0 / 720;
  sum = sum * square + 1.0 / 24;
  sum = sum * square - 0.5;
  return 1 + square * sum;
}

}  // namespace

Rotation RotationBy(float angle) {
  // Adding 1.5 * 2^52 rounds to the nearest integer and leaves it in the low mantissa bits.
  constexpr double kRounder = 6755399441055744.0;
  // pi / 2 in parts of 24 bits and the rest: the first two products and differences are exact.
  constexpr double kHigh = 0x1.921fb4p+0, kMiddle = 0x1.4442dp-24, kLow = 0x1.8469898cc5170p-48;
  const double rounded = angle * (2 / std::numbers::pi) + kRounder;
  const double quarters = rounded - kRounder;
  const double rest = ((angle - quarters * kHigh) - quarters * kMiddle) - quarters * kLow;
  const auto sin = static_cast<float>(SinOf(rest)), cos = static_cast<float>(CosOf(rest));
  switch (std::bit_cast<uint64_t>(rounded) & 3) {
    case 0:
      return {.cos = cos, .sin = sin};
    case 1:
      return {.cos = -sin, .sin = cos};
    case 2:
      return {.cos = -cos, .sin = -sin};
    default:
      return {.cos = sin, .sin = -cos};
  }
}

}  // namespace tandem
