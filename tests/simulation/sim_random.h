#pragma once

// Draws of the simulation: the same seed gives the same draws. Thread: any one.

#include <cstdint>
#include <random>

namespace tandem {

class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : engine_(seed) {}

  uint64_t Next() { return engine_(); }
  // True with this probability.
  bool Chance(double probability) {
    return static_cast<double>(Next() >> 11) * 0x1p-53 < probability;
  }
  // Both included; low if high is less.
  int32_t Between(int32_t low, int32_t high) {
    if (high <= low) return low;
    return low + static_cast<int32_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tandem
