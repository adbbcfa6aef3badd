#pragma once

// Counter-based randomness: a draw is a function of (seed, counter), never of what was drawn
// before, so a request's tokens do not depend on the batch it ran in and a position can be drawn
// again. Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
// Thread: pure functions.

#include <array>
#include <cstdint>

namespace tandem {

std::array<uint32_t, 4> Philox4x32(uint64_t seed, uint64_t counter_low, uint64_t counter_high);

// Uniform in (0, 1): never exactly 0 or 1, so its logarithm is finite. `stream` separates uses
// (sampling, dropping, ids …) that share a seed and position.
double UniformAt(uint64_t seed, uint64_t position, uint64_t stream = 0);

// 64 bits mixed from one word; turns request numbers into unrelated seeds (splitmix64's finalizer).
uint64_t MixBits(uint64_t x);

}  // namespace tandem
