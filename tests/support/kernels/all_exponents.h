#pragma once

// Numbers over the whole range of float, for functions of one number. Thread: any.

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/elementary_functions.h"
#include "tests/support/kernels/kernel_cases.h"

namespace tandem {

// Of both signs and all exponents the least, the largest and `of_each` random numbers, more of
// those near 1; zeros and infinities are among them. And numbers around those from which on a
// function of kernels/elementary_functions.h is constant or its argument. No NaN.
inline std::vector<float> NumbersOfAllExponents(uint64_t seed, int of_each) {
  Draw draw(seed);
  std::vector<float> numbers;
  const auto add = [&](uint32_t bits) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const auto number = std::bit_cast<float>(bits | sign);
      if (!std::isnan(number)) numbers.push_back(number);
    }
  };
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    const int count = exponent >= 127 - 26 && exponent <= 127 + 7 ? 20 * of_each : of_each;
    for (const uint32_t mantissa : {0u, 1u, 0x7fffffu}) add(exponent << 23 | mantissa);
    for (int i = 0; i < count; ++i) {
      add(exponent << 23 | static_cast<uint32_t>(draw.Int(0, 0x7fffff)));
    }
  }
  for (const float around :
       {17.0f, 20.0f, 87.0f, -kSmallestExponent, kLargestExponent, 88.72284f}) {
    for (uint32_t i = 0; i < 16; ++i) add(std::bit_cast<uint32_t>(around) - 8 + i);
  }
  return numbers;
}

}  // namespace tandem
