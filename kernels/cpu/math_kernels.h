#pragma once

// exp and the functions built on it, lane by lane, on the vec_*.h of the including isa_*.cc.

namespace tandem {
namespace {

// Within 2 ulp on [-87.33, 88]; larger arguments count as 88 (1.65e38), smaller ones give 0, 0
// gives exactly 1, NaN stays NaN. Cody and Waite's reduction to |r| <= ln 2 / 2, then a polynomial
// of degree 6 that meets exp at Chebyshev's points of the range (relative error below 1e-8).
inline Vec Exp(Vec x) {
  const Vec kept = Min(Set1(88.0f), Max(Set1(-87.33f), x));
  const Vec n = RoundToInt(Mul(kept, Set1(1.44269504f)));
  Vec r = Fma(n, Set1(-0.693145752f), kept);
  r = Fma(n, Set1(-1.42860677e-6f), r);
  Vec p = Set1(1.392632562e-03f);
  p = Fma(p, r, Set1(8.363292753e-03f));
  p = Fma(p, r, Set1(4.166655376e-02f));
  p = Fma(p, r, Set1(1.666657631e-01f));
  p = Fma(p, r, Set1(5.000000000e-01f));
  p = Fma(p, r, Set1(1.0f));
  p = Fma(p, r, Set1(1.0f));
  return SelectLess(x, Set1(-87.33f), Zero(), TimesPow2(p, n));
}

inline Vec Silu(Vec x) { return Div(x, Add(Set1(1.0f), Exp(Sub(Zero(), x)))); }

// 1 - 2 / (e^2x + 1): absolute error near 1e-7, which a soft cap scales by the cap.
inline Vec Tanh(Vec x) {
  const Vec power = Exp(Add(x, x));
  return Sub(Set1(1.0f), Div(Set1(2.0f), Add(power, Set1(1.0f))));
}

// In its tanh form. Where the argument of Exp is cut to +-88 the result is x or 0.
inline Vec Gelu(Vec x) {
  const Vec cube = Mul(Mul(x, x), x);
  const Vec inner = Mul(Set1(0.7978845608f), Fma(Set1(0.044715f), cube, x));
  return Mul(Mul(Set1(0.5f), x), Add(Set1(1.0f), Tanh(inner)));
}

// The error function, within 1.5e-7: Abramowitz and Stegun 7.1.26 on |x|.
inline Vec Erf(Vec x) {
  const Vec size = Max(x, Sub(Zero(), x));
  const Vec t = Div(Set1(1.0f), Fma(Set1(0.3275911f), size, Set1(1.0f)));
  Vec p = Set1(1.061405429f);
  p = Fma(p, t, Set1(-1.453152027f));
  p = Fma(p, t, Set1(1.421413741f));
  p = Fma(p, t, Set1(-0.284496736f));
  p = Fma(p, t, Set1(0.254829592f));
  const Vec tail = Mul(Mul(p, t), Exp(Sub(Zero(), Mul(size, size))));
  const Vec positive = Sub(Set1(1.0f), tail);
  return SelectLess(x, Zero(), Sub(Zero(), positive), positive);
}

inline Vec ErfGelu(Vec x) {
  return Mul(Mul(Set1(0.5f), x), Add(Set1(1.0f), Erf(Mul(x, Set1(0.70710678f)))));
}

}  // namespace
}  // namespace tandem
