#pragma once

// The definition of products with matrices in the blocks of their sources (WeightFormat::kStored).
// Thread, ownership: as ReferenceMatrix, which has one for such a matrix.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matrix_source.h"
#include "kernels/tensor.h"

namespace tandem {

class ReferenceBlocks {
 public:
  // REQUIRES: ResolveFormat of these is kStored.
  explicit ReferenceBlocks(std::span<const MatrixSource> sources);

  int64_t num_bytes() const;
  float Weight(int64_t n, int64_t k) const;
  // y = x W^T + bias.  y: [T, n] f32; x: [T, k] f32; bias: [n] f32, or empty.
  void Multiply(const Tensor& y, const Tensor& x, const Tensor& bias) const;

 private:
  static constexpr int64_t kGroup = 16;  // the finest; wider ones are several of them

  float Dot(int64_t n, std::span<const int32_t> integers, std::span<const float> scales) const;

  int64_t k_;
  std::vector<int16_t> integers_;  // [n, k]
  std::vector<float> scales_;      // [n, k / 16]
  std::vector<float> offsets_;     // [n, k / 16]
  struct Row {
    int64_t group_size;
    bool has_offsets;
  };
  std::vector<Row> rows_;  // [n]
};

}  // namespace tandem
