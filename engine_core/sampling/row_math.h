#pragma once

// Loops over one row of logits, written to be vectorised: a row has up to 150,000 numbers, and
// every sampled token costs a few passes. Thread: pure functions. Results do not depend on the
// machine's instruction set (no fused multiply-add), so a seeded draw repeats on another host.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

struct RowMax {
  float max = 0;
  int64_t argmax = 0;    // among equals the lowest index
  int64_t num_nans = 0;  // NaN or infinite in either direction
};

// REQUIRES a row that is not empty.
RowMax FindMax(std::span<const float> x);

// out[i] = exp((x[i] - max) / temperature), within 2e-7 relative; 0 for -infinity.
// REQUIRES max >= x[i], temperature > 0.
void ExpScaled(std::span<const float> x, float max, float temperature, std::span<float> out);

// Sums of blocks of kSumBlock numbers (in float, lane by lane) added up in double, in order.
// REQUIRES numbers in [0, 1].
constexpr size_t kSumBlock = 256;
double Sum(std::span<const float> x);

// log(sum exp(x)), summed in double.
double LogSumExp(std::span<const float> x);

// Makes the numbers that a token mask (kernels/sampling_config.h) does not allow -infinity; false:
// it allows all of them.
bool MaskRow(std::span<const int32_t> mask, std::span<float> x);

int64_t CountAtLeast(std::span<const float> x, float bound);

}  // namespace tandem
