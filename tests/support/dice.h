#pragma once

// Numbers from a seed, one after another, for tests that draw their inputs.

#include <cstdint>

#include "common/random.h"

namespace tandem {

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  // Uniform in [low, high].
  int32_t Roll(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(UniformAt(seed_, next_++, 7) * (high - low + 1));
  }
  bool Chance(int32_t one_in) { return Roll(1, one_in) == 1; }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

}  // namespace tandem
