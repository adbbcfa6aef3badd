#include "kernels/quantization.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace tandem {

namespace {

constexpr int64_t kMaxGroup = 128;

// A vector of four numbers, which every x86-64 has. gcc 12 does not vectorise loops of single
// numbers with a clamp in them.
using Lanes = float __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4;

inline Lanes LoadLanes(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

// Nearest whole number, ties to even, of |x| < 2^22; compiles to vector code, unlike nearbyint.
template <class T>
inline T Round(T x) {
  return (x + 12582912.0f) - 12582912.0f;
}

float MaxAbs(std::span<const float> row) {
  // Compares bits: a NaN is above every number, so it is not lost.
  uint32_t max = 0;
  for (float value : row) max = std::max(max, std::bit_cast<uint32_t>(value) & 0x7fffffff);
  return std::bit_cast<float>(max);
}

struct Candidate {
  float factor = 0;
  float zero = 0;
};

inline Lanes CodesOf(Lanes values, float inverse, float zero) {
  const Lanes lowest = {};
  const Lanes highest = lowest + 15.0f;
  const Lanes codes = Round(values * inverse) + zero;
  const Lanes raised = codes < lowest ? lowest : codes;
  return raised > highest ? highest : raised;
}

// Sum of squared errors of a group under a candidate.
float ErrorOf(const float* values, int64_t count, Candidate candidate) {
  const float inverse = 1 / candidate.factor;
  Lanes error[2] = {};
  for (int64_t i = 0; i < count; i += 2 * kLanes) {
    for (int half = 0; half < 2; ++half) {
      const Lanes value = LoadLanes(values + i + half * kLanes);
      const Lanes codes = CodesOf(value, inverse, candidate.zero);
      const Lanes left = value - (codes - candidate.zero) * candidate.factor;
      error[half] += left * left;
    }
  }
  float sum = 0;
  for (const Lanes& half : error) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sum += half[lane];
  }
  return sum;
}

// The best of a few candidates near the factor and zero of the group's range. `values`, in units of
// the row's scale, are followed by zeros up to a multiple of 8.
Candidate ChooseGroup(const float* values, int64_t count) {
  float min = 0;
  float max = 0;
  for (int64_t i = 0; i < count; ++i) {
    min = std::min(min, values[i]);
    max = std::max(max, values[i]);
  }
  if (min == max) return {};
  const float whole = std::ceil((max - min) / 15);
  Candidate best;
  float best_error = std::numeric_limits<float>::infinity();
  for (float factor : {whole, whole - 1}) {
    if (factor < 1) continue;
    for (float zero : {std::ceil(-min / factor), std::floor(-min / factor)}) {
      // All sixteen integers must be signed bytes; with `whole` and the ceiling they always are.
      if (zero > 15 || zero * factor > 128 || (15 - zero) * factor > 127) continue;
      const float error = ErrorOf(values, (count + 7) / 8 * 8, {factor, zero});
      if (error < best_error) {
        best_error = error;
        best = {factor, zero};
      }
    }
  }
  return best;
}

}  // namespace

float QuantizeInt8(std::span<const float> row, int8_t* integers) {
  const float max = MaxAbs(row);
  const float inverse = max > 0 ? 127 / max : 0;
  if (!std::isfinite(max) || !std::isfinite(inverse)) {
    std::fill_n(integers, row.size(), int8_t{0});
    return std::isfinite(max) ? 0 : max;
  }
  for (size_t i = 0; i < row.size(); ++i) {
    integers[i] = static_cast<int8_t>(static_cast<int>(Round(row[i] * inverse)));
  }
  return max / 127;
}

float ReadInt8(const StackedRows& rows, int64_t n, std::span<float> room, int8_t* integers) {
  const StackedRows::Row row = rows.Find(n);
  const MatrixSource& block = *row.block;
  if (!block.IsInt8Rows()) {
    rows.Read(n, 0, rows.columns(), DType::kF32, room.data());
    return QuantizeInt8(room, integers);
  }
  std::memcpy(integers, block.values.Row<int8_t>(row.row), static_cast<size_t>(rows.columns()));
  return block.scales.empty() ? 1 : block.scales.Row<float>(row.row)[0];
}

float QuantizeInt4(std::span<const float> row, int64_t group_size, uint8_t* codes,
                   Int4Group* groups) {
  const float max = MaxAbs(row);
  const float inverse = max > 0 ? 112 / max : 0;
  const auto k = static_cast<int64_t>(row.size());
  CHECK(group_size > 0 && group_size <= kMaxGroup) << group_size;
  const bool is_usable = std::isfinite(max) && std::isfinite(inverse);
  alignas(64) std::array<float, kMaxGroup> values;
  for (int64_t begin = 0; begin < k; begin += group_size) {
    const int64_t count = std::min(group_size, k - begin);
    for (int64_t i = 0; i < count; ++i) values[i] = is_usable ? row[begin + i] * inverse : 0;
    for (int64_t i = count; i % 8 != 0; ++i) values[i] = 0;
    const Candidate chosen = ChooseGroup(values.data(), count);
    groups[begin / group_size].bits =
        static_cast<uint8_t>(static_cast<int>(chosen.factor) | static_cast<int>(chosen.zero) << 4);
    const float group_inverse = chosen.factor > 0 ? 1 / chosen.factor : 0;
    for (int64_t i = 0; i < count; i += kLanes) {
      const Lanes coded = CodesOf(LoadLanes(&values[i]), group_inverse, chosen.zero);
      for (int64_t lane = 0; lane < std::min(kLanes, count - i); ++lane) {
        codes[begin + i + lane] = static_cast<uint8_t>(static_cast<int>(coded[lane]));
      }
    }
  }
  if (!std::isfinite(max)) return max;
  return is_usable ? max / 112 : 0;
}

}  // namespace tandem
