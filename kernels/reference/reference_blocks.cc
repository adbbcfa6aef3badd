#include "kernels/reference/reference_blocks.h"

#include <algorithm>
#include <cmath>

#include "kernels/stored_blocks.h"

namespace tandem {
namespace {

// Rounds blocks of 32. If a number of a block is not finite its scale is NaN, and so are the row's
// products.
void QuantizeBlocks(const float* x, std::span<int32_t> integers, std::span<float> scales) {
  for (size_t block = 0; block < scales.size(); ++block) {
    const float* const from = x + block * kActivationBlock;
    int32_t* const to = integers.data() + block * kActivationBlock;
    float max = 0;
    bool is_finite = true;
    for (int64_t i = 0; i < kActivationBlock; ++i) {
      is_finite = is_finite && std::isfinite(from[i]);
      max = std::max(max, std::abs(from[i]));
    }
    const float inverse = 127 / max;  // infinite when there is nothing to scale
    const bool is_usable = is_finite && std::isfinite(inverse);
    scales[block] = is_usable ? max / 127 : is_finite ? 0 : NAN;
    for (int64_t i = 0; i < kActivationBlock; ++i) {
      to[i] = is_usable ? static_cast<int32_t>(std::nearbyint(from[i] * inverse)) : 0;
    }
  }
}

}  // namespace

ReferenceBlocks::ReferenceBlocks(std::span<const MatrixSource> sources) : k_(sources[0].columns()) {
  BlockCodes parts;
  for (const MatrixSource& source : sources) {
    const BlockFormat format = *FindStoredFormat(source);
    for (int64_t row = 0; row < source.rows(); ++row) {
      rows_.push_back({std::min(format.group_size, kActivationBlock), format.has_offsets()});
      for (int64_t block = 0; block < k_ / format.size; ++block) {
        ReadStoredBlock(source, format, row, block, &parts);
        for (int64_t i = 0; i < format.size; ++i) {
          const GroupScale group = ScaleOfGroup(format, parts, i / format.group_size);
          integers_.push_back(static_cast<int16_t>(format.IntegerOf(parts.codes[i]) - group.zero));
          if (i % kGroup != 0) continue;
          scales_.push_back(group.scale);
          offsets_.push_back(group.offset);
        }
      }
    }
  }
}

int64_t ReferenceBlocks::num_bytes() const {
  return static_cast<int64_t>(integers_.size() * sizeof(int16_t) +
                              (scales_.size() + offsets_.size()) * sizeof(float));
}

float ReferenceBlocks::Weight(int64_t n, int64_t k) const {
  const auto group = static_cast<size_t>((n * k_ + k) / kGroup);
  const float weight =
      scales_[group] * static_cast<float>(integers_[static_cast<size_t>(n * k_ + k)]);
  return rows_[static_cast<size_t>(n)].has_offsets ? weight + offsets_[group] : weight;
}

float ReferenceBlocks::Dot(int64_t n, std::span<const int32_t> integers,
                           std::span<const float> scales) const {
  const Row& row = rows_[static_cast<size_t>(n)];
  float sum = 0;
  for (int64_t begin = 0; begin < k_; begin += row.group_size) {
    int32_t products = 0, total = 0;
    for (int64_t k = begin; k < begin + row.group_size; ++k) {
      products += integers[static_cast<size_t>(k)] * integers_[static_cast<size_t>(n * k_ + k)];
      total += integers[static_cast<size_t>(k)];
    }
    const auto group = static_cast<size_t>((n * k_ + begin) / kGroup);
    const float x_scale = scales[static_cast<size_t>(begin / kActivationBlock)];
    sum = std::fma(static_cast<float>(products), scales_[group] * x_scale, sum);
    if (row.has_offsets) {
      sum = std::fma(offsets_[group], x_scale * static_cast<float>(total), sum);
    }
  }
  return sum;
}

void ReferenceBlocks::Multiply(const Tensor& y, const Tensor& x, const Tensor& bias) const {
  std::vector<int32_t> integers(static_cast<size_t>(k_));
  std::vector<float> scales(static_cast<size_t>(k_ / kActivationBlock));
  for (int64_t t = 0; t < x.rows(); ++t) {
    QuantizeBlocks(x.Row<float>(t), integers, scales);
    for (int64_t n = 0; n < static_cast<int64_t>(rows_.size()); ++n) {
      const float sum = Dot(n, integers, scales);
      y.Row<float>(t)[n] = bias.empty() ? sum : sum + bias.Data<float>()[n];
    }
  }
}

}  // namespace tandem
