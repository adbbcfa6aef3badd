#pragma once

// The exponential that samplers weigh tokens with: the same bits on every host, whatever its
// instruction set, and on a device, so that a seeded draw repeats on another machine. REQUIRES a
// compiler that does not fuse multiply and add (-ffp-contract=off; nvcc: -fmad=false). Thread: any.

#include <bit>
#include <cstdint>

namespace tandem {

// exp of x <= 0 without a branch: 2^n * 2^f with f in [-0.5, 0.5], the latter by the Taylor series
// of exp(f ln 2) up to the 7th power (truncation below 1e-9). Within 2e-7 relative. Smaller than
// float's normal range: 0.
constexpr float ExpNonPositive(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kSmallest = -87.0f;
  const float clamped = x < kSmallest ? kSmallest : x;
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low mantissa bits.
  constexpr float kRounder = 12582912.0f;
  const float rounded = clamped * kLog2E + kRounder;
  const int32_t n = std::bit_cast<int32_t>(rounded) - std::bit_cast<int32_t>(kRounder);
  const float whole = rounded - kRounder;
  const float r = (clamped - whole * kLn2High) - whole * kLn2Low;
  float series = 1.0f / 5040;
  series = series * r + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const float power = std::bit_cast<float>((n + 127) << 23);
  return x < kSmallest ? 0.0f : series * power;
}

}  // namespace tandem
