#pragma once

// exp, sigmoid, SiLU and softplus in float32: of samplers' weights and of layers with a state. The
// bits are the same on every host, whatever its instruction set and its libm, and on a device, so
// that a seeded draw and a state repeat on another machine. REQUIRES a compiler that does not fuse
// multiply and add (-ffp-contract=off; nvcc: -fmad=false). Thread: any. Number is a float, or a
// vector of them; Ops is what is done with one, with a rounding per operation. PowerOfTwo(n + 1.5 *
// 2^23) is 2^n for n in [-126, 127]. Bounds hold for all floats; an ulp is that of the exact
// result. NaN gives NaN. SiluOf, x / (1 + exp(-x)), is within 2.5 ulp, and -0 below -88.38, where
// its size is less than 3.7e-37, but NaN for -infinity.

#include <bit>
#include <cstdint>
#include <limits>

namespace tandem {

inline constexpr float kSmallestExponent = -87.3365402f;  // below, exp is smaller than 2^-126
inline constexpr float kLargestExponent = 88.3762589f;    // up to it, n of ExpWithinOf is below 128

// exp between the two: 2^n * exp(r) with |r| <= ln 2 / 2, and exp(r) = 1 + (r + r^2 q(r)), where
// the sum in parentheses is at most 0.42: only the last sum rounds coarsely. q meets exp within
// 4e-9.
template <class Ops, class Number>
constexpr __attribute__((always_inline)) Number ExpWithinOf(Number x) {
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low mantissa bits.
  const Number rounder = Ops::All(12582912.0f);
  const Number rounded = Ops::MulAdd(x, Ops::All(1.44269504f), rounder);
  const Number whole = Ops::Sub(rounded, rounder);
  // ln 2 in two parts, so that the first product is exact.
  const Number high = Ops::Mul(whole, Ops::All(0.693359375f));
  const Number low = Ops::Mul(whole, Ops::All(-2.12194440e-4f));
  const Number r = Ops::Sub(Ops::Sub(x, high), low);
  Number q = Ops::All(1.38145685e-3f);
  q = Ops::MulAdd(q, r, Ops::All(8.36872961e-3f));
  q = Ops::MulAdd(q, r, Ops::All(4.16683890e-2f));
  q = Ops::MulAdd(q, r, Ops::All(1.66665211e-1f));
  q = Ops::MulAdd(q, r, Ops::All(4.99999940e-1f));
  const Number beyond_one = Ops::MulAdd(q, Ops::Mul(r, r), r);
  return Ops::Mul(Ops::Add(beyond_one, Ops::All(1.0f)), Ops::PowerOfTwo(rounded));
}

// Of x <= 0, within 1 ulp; 0 where that is below 2^-126.
template <class Ops, class Number>
constexpr __attribute__((always_inline)) Number ExpNonPositiveOf(Number x) {
  return Ops::SelectLess(x, Ops::All(kSmallestExponent), Ops::All(0.0f), ExpWithinOf<Ops>(x));
}

// The same of any x; infinity from 2.4e38 on.
template <class Ops, class Number>
constexpr __attribute__((always_inline)) Number ExpOf(Number x) {
  return Ops::SelectLess(Ops::All(kLargestExponent), x,
                         Ops::All(std::numeric_limits<float>::infinity()),
                         ExpNonPositiveOf<Ops>(x));
}

// 1 / (1 + exp(-x)) within 2.5 ulp; 0 for x < -88.38, where that is below 4.2e-39.
template <class Ops, class Number>
constexpr __attribute__((always_inline)) Number SigmoidOf(Number x) {
  const Number one = Ops::All(1.0f);
  return Ops::Div(one, Ops::Add(one, ExpOf<Ops>(Ops::Sub(Ops::All(0.0f), x))));
}

template <class Ops, class Number>
constexpr __attribute__((always_inline)) Number SiluOf(Number x) {
  return Ops::Div(x, Ops::Add(Ops::All(1.0f), ExpOf<Ops>(Ops::Sub(Ops::All(0.0f), x))));
}

// log(1 + exp(x)) within 2.1 ulp; 0 where it is below 2^-126. It is max(x, 0) + log(1 + e) with e =
// exp(-|x|), and the logarithm is 2 atanh(s) with s = e / (2 + e) <= 1/3, or e - s (e - t) with t =
// 2/3 s^2 + 2/5 s^4 + ...: errors of s count for a third at most.
template <class Ops, class Number>
constexpr __attribute__((always_inline)) Number SoftplusOf(Number x) {
  const Number zero = Ops::All(0.0f);
  const Number e = ExpNonPositiveOf<Ops>(Ops::SelectLess(x, zero, x, Ops::Sub(zero, x)));
  const Number s = Ops::Div(e, Ops::Add(e, Ops::All(2.0f)));
  const Number z = Ops::Mul(s, s);
  Number t = Ops::All(2.80120671e-1f);
  t = Ops::MulAdd(t, z, Ops::All(2.80017912e-1f));
  t = Ops::MulAdd(t, z, Ops::All(4.00215268e-1f));
  t = Ops::MulAdd(t, z, Ops::All(6.66664183e-1f));
  t = Ops::Mul(t, z);
  const Number log = Ops::Sub(e, Ops::Mul(s, Ops::Sub(e, t)));
  return Ops::Add(Ops::SelectLess(zero, x, x, zero), log);
}

struct FloatOps {
  static constexpr float All(float value) { return value; }
  static constexpr float Add(float a, float b) { return a + b; }
  static constexpr float Sub(float a, float b) { return a - b; }
  static constexpr float Mul(float a, float b) { return a * b; }
  static constexpr float Div(float a, float b) { return a / b; }
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
