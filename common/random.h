#pragma once

// Counter-based randomness: a draw is a function of (seed, counter) and not of earlier draws, so
// a request's tokens do not depend on the batch it ran in, and a position can be drawn a second
// time. Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
// Thread: pure functions; constexpr, so that device code shares them.

#include <array>
#include <cstdint>

namespace tandem {

constexpr std::array<uint32_t, 4> Philox4x32(uint64_t seed, uint64_t counter_low,
                                             uint64_t counter_high) {
  // Multipliers and Weyl constants of the Philox4x32 definition.
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  std::array<uint32_t, 4> x = {
      static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
      static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * x[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * x[2];
    x = {static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return x;
}

// Uniform in (0, 1): never exactly 0 or 1, so its logarithm is finite. `stream` separates uses
// (sampling, dropping, ids …) that share a seed and position.
constexpr double UniformAt(uint64_t seed, uint64_t position, uint64_t stream = 0) {
  const std::array<uint32_t, 4> x = Philox4x32(seed, position, stream);
  const uint64_t bits = (uint64_t{x[0]} << 32 | x[1]) >> 12;  // 52 bits
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

// 64 bits mixed from one word; turns request numbers into unrelated seeds (splitmix64's finalizer).
constexpr uint64_t MixBits(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace tandem
