#include "engine_core/sampling/row_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "kernels/elementary_functions.h"

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

// All ones cost one vectorised pass over the words. Most words of a grammar's mask allow all or
// none of their tokens.
bool MaskRow(std::span<const int32_t> mask, std::span<float> x) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  const size_t num_whole = x.size() / 32;
  const uint32_t rest = (uint32_t{1} << x.size() % 32) - 1;  // bits of the last word that count
  int32_t all = -1;
  for (size_t word = 0; word < num_whole; ++word) all &= mask[word];
  const uint32_t rest_banned = rest == 0 ? 0 : ~static_cast<uint32_t>(mask[num_whole]) & rest;
  if (all == -1 && rest_banned == 0) return false;
  const auto ban = [&](size_t word, uint32_t banned) {
    for (; banned != 0; banned &= banned - 1) x[32 * word + std::countr_zero(banned)] = kMasked;
  };
  for (size_t word = 0; word < num_whole; ++word) {
    if (mask[word] == 0) {
      std::fill_n(x.data() + 32 * word, 32, kMasked);
    } else {
      ban(word, ~static_cast<uint32_t>(mask[word]));
    }
  }
  ban(num_whole, rest_banned);
  return true;
}

int64_t CountAtLeast(std::span<const float> x, float bound) {
  int64_t count = 0;
  for (const float value : x) count += value >= bound ? 1 : 0;
  return count;
}

}  // namespace tandem
