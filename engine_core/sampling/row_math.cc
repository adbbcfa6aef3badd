#include "engine_core/sampling/row_math.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/check.h"

namespace tandem {
namespace {

// exp of x <= 0 without a branch: 2^n * 2^f with f in [-0.5, 0.5], the latter by the Taylor series
// of exp(f ln 2) up to the 7th power (truncation below 1e-9). Smaller than float's normal range: 0.
inline float ExpNonPositive(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kSmallest = -87.0f;
  const float clamped = x < kSmallest ? kSmallest : x;
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low mantissa bits.
  constexpr float kRounder = 12582912.0f;
  const float rounded = clamped * kLog2E + kRounder;
  const int32_t n = std::bit_cast<int32_t>(rounded) - std::bit_cast<int32_t>(kRounder);
  const float whole = rounded - kRounder;
  const float r = (clamped - whole * kLn2High) - whole * kLn2Low;
  float series = 1.0f / 5040;
  series = series * r + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const float power = std::bit_cast<float>((n + 127) << 23);
  return x < kSmallest ? 0.0f : series * power;
}

constexpr size_t kLanes = 16;

}  // namespace

RowMax FindMax(std::span<const float> x) {
  CHECK(!x.empty());
  float lane_max[kLanes];
  int32_t lane_bad[kLanes] = {};
  std::fill(lane_max, lane_max + kLanes, x[0]);
  const size_t whole = x.size() / kLanes * kLanes;
  const auto is_bad = [](float value) {
    return (std::bit_cast<uint32_t>(value) & 0x7f800000u) == 0x7f800000u ? 1 : 0;
  };
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      lane_max[j] = x[i + j] > lane_max[j] ? x[i + j] : lane_max[j];
      lane_bad[j] += is_bad(x[i + j]);
    }
  }
  RowMax result;
  result.max = *std::max_element(lane_max, lane_max + kLanes);
  for (const int32_t bad : lane_bad) result.num_nans += bad;
  for (size_t i = whole; i < x.size(); ++i) {
    result.max = std::max(result.max, x[i]);
    result.num_nans += is_bad(x[i]);
  }
  const auto first = std::find(x.begin(), x.end(), result.max);
  result.argmax = first == x.end() ? 0 : first - x.begin();
  return result;
}

void ExpScaled(std::span<const float> x, float max, float temperature, std::span<float> out) {
  const float* in = x.data();
  float* result = out.data();
  const size_t n = x.size();
  for (size_t i = 0; i < n; ++i) result[i] = ExpNonPositive((in[i] - max) / temperature);
}

double Sum(std::span<const float> x) {
  double total = 0;
  for (size_t begin = 0; begin < x.size(); begin += kSumBlock) {
    const size_t end = std::min(begin + kSumBlock, x.size());
    const size_t whole = begin + (end - begin) / kLanes * kLanes;
    float lanes[kLanes] = {};
    for (size_t i = begin; i < whole; i += kLanes) {
      for (size_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j];
    }
    double block = 0;
    for (const float lane : lanes) block += lane;
    for (size_t i = whole; i < end; ++i) block += x[i];
    total += block;
  }
  return total;
}

double LogSumExp(std::span<const float> x) {
  const float max = FindMax(x).max;
  if (!std::isfinite(max)) return max;
  double sum = 0;
  float values[kSumBlock];
  for (size_t begin = 0; begin < x.size(); begin += kSumBlock) {
    const auto block = x.subspan(begin, std::min(kSumBlock, x.size() - begin));
    ExpScaled(block, max, 1.0f, {values, block.size()});
    sum += Sum({values, block.size()});
  }
  return max + std::log(sum);
}

int64_t CountAtLeast(std::span<const float> x, float bound) {
  int64_t count = 0;
  for (const float value : x) count += value >= bound ? 1 : 0;
  return count;
}

}  // namespace tandem
