#pragma once

// The exponential that samplers weigh tokens with: the same bits on every host, whatever its
// instruction set, and on a device, so that a seeded draw repeats on another machine. REQUIRES a
// compiler that does not fuse multiply and add (-ffp-contract=off; nvcc: -fmad=false). Thread: any.

#include <bit>
#include <cstdint>

namespace tandem {

// exp of x <= 0 without a branch: 2^n * 2^f with f in [-0.5, 0.5], the latter by the Taylor series
// of exp(f ln 2) up to the 7th power (truncation below 1e-9). Within 2e-7 relative. Smaller than
// float's normal range: 0. Number: a float, or a vector of them; Ops: what is done with one, with a
// rounding per operation. PowerOfTwo(n + 1.5 * 2^23) is 2^n.
template <class Ops, class Number>
constexpr Number ExpNonPositiveOf(Number x) {
  const Number smallest = Ops::All(-87.0f);
  const Number clamped = Ops::SelectLess(x, smallest, smallest, x);
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low mantissa bits.
  const Number rounder = Ops::All(12582912.0f);
  const Number rounded = Ops::MulAdd(clamped, Ops::All(1.44269504f), rounder);
  const Number whole = Ops::Sub(rounded, rounder);
  // ln 2 in two parts, so that the first product is exact.
  const Number high = Ops::Mul(whole, Ops::All(0.693359375f));
  const Number low = Ops::Mul(whole, Ops::All(-2.12194440e-4f));
  const Number r = Ops::Sub(Ops::Sub(clamped, high), low);
  Number series = Ops::All(1.0f / 5040);
  series = Ops::MulAdd(series, r, Ops::All(1.0f / 720));
  series = Ops::MulAdd(series, r, Ops::All(1.0f / 120));
  series = Ops::MulAdd(series, r, Ops::All(1.0f / 24));
  series = Ops::MulAdd(series, r, Ops::All(1.0f / 6));
  series = Ops::MulAdd(series, r, Ops::All(0.5f));
  series = Ops::MulAdd(series, r, Ops::All(1.0f));
  series = Ops::MulAdd(series, r, Ops::All(1.0f));
  return Ops::SelectLess(x, smallest, Ops::All(0.0f), Ops::Mul(series, Ops::PowerOfTwo(rounded)));
}

struct FloatOps {
  static constexpr float All(float value) { return value; }
  static constexpr float Sub(float a, float b) { return a - b; }
  static constexpr float Mul(float a, float b) { return a * b; }
  static constexpr float MulAdd(float a, float b, float c) { return a * b + c; }
  static constexpr float SelectLess(float a, float b, float less, float other) {
    return a < b ? less : other;
  }
  // The bits above the exponent's are shifted out, and with them those of 1.5 * 2^23.
  static constexpr float PowerOfTwo(float rounded) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(rounded) + 127) << 23);
  }
};

constexpr float ExpNonPositive(float x) { return ExpNonPositiveOf<FloatOps>(x); }

}  // namespace tandem
