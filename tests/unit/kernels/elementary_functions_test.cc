// The scalar forms, over all exponents, against long double. tests/property/kernels_isa_test.cc
// compares the vectors of each instruction set with them.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/elementary_functions.h"
#include "tests/support/kernels/all_exponents.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

constexpr uint64_t kSeed = 20261127;

long double Ulp(long double exact) {
  const int exponent = std::max(-126, exact == 0 ? -126 : std::ilogb(exact));
  return std::ldexp(1.0L, exponent - 23);
}

// The largest error in ulp over the numbers in [least, most].
double WorstUlps(float (*ours)(float), long double (*exact)(long double), float least, float most) {
  long double worst = 0;
  for (const float x : NumbersOfAllExponents(kSeed, 40)) {
    if (x < least || x > most) continue;
    const long double expected = exact(x), error = std::abs(ours(x) - expected) / Ulp(expected);
    if (!(error <= worst)) worst = error;
  }
  return static_cast<double>(worst);
}

float Exp(float x) { return ExpOf<FloatOps>(x); }
float Sigmoid(float x) { return SigmoidOf<FloatOps>(x); }
float Silu(float x) { return SiluOf<FloatOps>(x); }
float Softplus(float x) { return SoftplusOf<FloatOps>(x); }

long double ExactExp(long double x) { return std::exp(x); }
long double ExactSigmoid(long double x) { return 1 / (1 + std::exp(-x)); }
long double ExactSilu(long double x) { return x / (1 + std::exp(-x)); }
long double ExactSoftplus(long double x) {
  return std::max(x, 0.0L) + std::log1p(std::exp(-std::abs(x)));
}

constexpr float kMost = std::numeric_limits<float>::max();

// The bounds of the header.
TEST_CASE("elementary functions: errors are within the bounds") {
  CHECK(WorstUlps(Exp, ExactExp, kSmallestExponent, kLargestExponent) < 1);
  CHECK(WorstUlps(Sigmoid, ExactSigmoid, -kLargestExponent, kMost) < 2.5);
  CHECK(WorstUlps(Silu, ExactSilu, -kLargestExponent, kMost) < 2.5);
  CHECK(WorstUlps(Softplus, ExactSoftplus, kSmallestExponent, kMost) < 2.1);
}

TEST_CASE("elementary functions: ends of the range") {
  for (const float x : NumbersOfAllExponents(kSeed, 10)) {
    CAPTURE(x);
    if (x < kSmallestExponent) CHECK(Exp(x) == 0);
    if (x > kLargestExponent) CHECK(Exp(x) == kInf);
    if (x <= 0)
      CHECK(std::bit_cast<uint32_t>(ExpNonPositive(x)) == std::bit_cast<uint32_t>(Exp(x)));
    if (x < -kLargestExponent) CHECK(Sigmoid(x) == 0);
    if (x < -kLargestExponent && x != -kInf) CHECK(Silu(x) == 0);
    if (x < kSmallestExponent) CHECK(Softplus(x) == 0);
    if (x > 20) CHECK((Sigmoid(x) == 1 && Silu(x) == x && Softplus(x) == x));
    CHECK((Sigmoid(x) >= 0 && Sigmoid(x) <= 1 && Softplus(x) >= 0));
  }
  CHECK(Exp(0) == 1);
  CHECK(Exp(-0.0f) == 1);
  CHECK(Sigmoid(0) == 0.5f);
  CHECK((Silu(-0.0f) == 0 && std::signbit(Silu(-0.0f))));
  CHECK(std::isnan(Silu(-kInf)));  // -inf / inf, as the formula has it
  for (const auto function : {Exp, Sigmoid, Silu, Softplus, ExpNonPositive}) {
    CHECK(std::isnan(function(NAN)));
    CHECK(std::isnan(function(-NAN)));
  }
}

// So that another compiler, library or processor that changes a bit is found.
TEST_CASE("elementary functions: the bits are those of every host") {
  const auto digest = [](float (*function)(float)) {
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (uint32_t i = 0; i < 200'000; ++i) {
      const float x = (static_cast<float>(i) - 100'000) / 1'000;
      hash = (hash ^ std::bit_cast<uint32_t>(function(x))) * 1099511628211u;
    }
    return hash;
  };
  CHECK(digest(Exp) == 9518377055155431479u);
  CHECK(digest(Sigmoid) == 14910159225335603483u);
  CHECK(digest(Silu) == 8233828380213119234u);
  CHECK(digest(Softplus) == 6365862789238143621u);
}

}  // namespace
}  // namespace tandem
