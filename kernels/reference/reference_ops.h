#pragma once

// The definition of every op: plain loops in float32 over contiguous [n, k] weights, one file per
// op family. Tests hold the other backends to it. Promises and thread as in kernels/ops.h. KV
// layout: [block][kv_head][token][head_dim].

#include <optional>
#include <span>
#include <vector>

#include "kernels/matrix_source.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_blocks.h"

namespace tandem {

// Of an integer format the values are whole numbers, to be multiplied by their row's scale.
class ReferenceMatrix final : public PackedMatrix {
 public:
  ReferenceMatrix(std::span<const MatrixSource> sources, WeightFormat format, bool is_gated);
  int64_t num_bytes() const override {
    return static_cast<int64_t>((values_.size() + scales_.size()) * sizeof(float)) +
           (blocks_ ? blocks_->num_bytes() : 0);
  }
  // Null unless it is kStored; then it has no values.
  const ReferenceBlocks* blocks() const { return blocks_ ? &*blocks_ : nullptr; }
  bool is_quantized() const { return !scales_.empty(); }
  const float* Row(int64_t i) const { return values_.data() + i * k(); }
  float scale(int64_t i) const { return is_quantized() ? scales_[i] : 1; }

 private:
  std::vector<float> values_;
  std::vector<float> scales_;  // of the rows; empty: kCompute
  std::optional<ReferenceBlocks> blocks_;
};

class ReferencePair final : public PackedPair {
 public:
  struct Block {
    int64_t begin = 0;  // of the matrix's rows
    int64_t rank = 0;
    std::vector<float> a;  // [r, k]
    std::vector<float> b;  // [rows, r], scaled
  };
  ReferencePair(std::span<const PairSource> blocks, int64_t n, int64_t k);
  int64_t num_bytes() const override;
  std::span<const Block> blocks() const { return blocks_; }

 private:
  std::vector<Block> blocks_;
};

class ReferencePlan final : public AttentionPlan {
 public:
  ReferencePlan(int64_t max_tokens, int64_t max_requests);
  void Fill(const AttentionBatch& batch) override;
  std::span<const int32_t> query_start() const { return query_start_; }
  std::span<const int32_t> context_len() const { return context_len_; }

 private:
  int64_t max_tokens_;
  int64_t max_requests_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> context_len_;
};

class ReferenceOps final : public Ops {
 public:
  ReferenceOps() : Ops({DType::kF32, DType::kF32}) {}

 private:
#define TANDEM_OP(name, parameters, arguments) void Do##name parameters override;
#include "kernels/ops.def"

  // What an epilogue does with y.
  void StoreProduct(const Tensor& out, const Tensor& y, LinearEpilogue epilogue);
};

// Shared by rope.cc and attention.cc: the offset of a token's K or V of one head.
inline int64_t ReferenceKvOffset(const LayerKv& kv, int64_t slot, int head) {
  const int64_t block = slot / kv.block_size;
  const int64_t token = slot % kv.block_size;
  return ((block * kv.num_kv_heads + head) * kv.block_size + token) * kv.head_dim;
}

}  // namespace tandem
