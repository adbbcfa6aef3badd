#include "engine_core/sampling/row_math.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/check.h"
#include "kernels/exp_non_positive.h"

namespace tandem {
namespace {

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
