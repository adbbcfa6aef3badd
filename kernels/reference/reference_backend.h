#pragma once

// The definition of every op: plain loops in float32 over contiguous [n, k] weights, one file per
// op family. Tests hold the other backends to it. Promises and thread as in backend.h. KV layout:
// [block][kv_head][token][head_dim].

#include <vector>

#include "kernels/backend.h"

namespace tandem {

// Of an integer format the values are whole numbers, to be multiplied by their row's scale.
class ReferenceMatrix final : public PackedMatrix {
 public:
  ReferenceMatrix(std::span<const Tensor> row_blocks, WeightFormat format, bool is_gated);
  int64_t num_bytes() const override {
    return static_cast<int64_t>((values_.size() + scales_.size()) * sizeof(float));
  }
  bool is_quantized() const { return !scales_.empty(); }
  const float* Row(int64_t i) const { return values_.data() + i * k(); }
  float scale(int64_t i) const { return is_quantized() ? scales_[i] : 1; }

 private:
  std::vector<float> values_;
  std::vector<float> scales_;  // of the rows; empty: kCompute
};

class ReferencePlan final : public AttentionPlan {
 public:
  ReferencePlan(int64_t max_tokens, int64_t max_requests);
  void Fill(const AttentionBatch& batch);
  std::span<const int32_t> query_start() const { return query_start_; }
  std::span<const int32_t> context_len() const { return context_len_; }

 private:
  int64_t max_tokens_;
  int64_t max_requests_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> context_len_;
};

class ReferenceBackend final : public Backend {
 public:
  std::string description() const override { return "reference float32"; }
  DType activation_dtype() const override { return DType::kF32; }
  DType residual_dtype() const override { return DType::kF32; }
  int num_threads() const override { return 1; }

  StatusOr<OwnedTensor> Allocate(DType dtype, std::initializer_list<int64_t> shape) override;
  StatusOr<OwnedTensor> Upload(const Tensor& host, DType dtype) override;
  void CopyIn(const Tensor& out, const Tensor& host) override { ConvertTensor(out, host); }
  void CopyOut(const Tensor& host, const Tensor& x) override { ConvertTensor(host, x); }
  StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const Tensor> row_blocks,
                                               WeightFormat format) override;
  StatusOr<std::unique_ptr<PackedMatrix>> PackGated(std::span<const Tensor> row_blocks,
                                                    WeightFormat format) override;
  int64_t KvBytesPerBlock(const KvCacheSpec& spec) const override;
  StatusOr<std::unique_ptr<KvCache>> AllocateKvCache(const KvCacheSpec& spec) override;

  StatusOr<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape,
                                                             int64_t max_tokens,
                                                             int64_t max_requests) override;
  void PlanAttention(const AttentionBatch& batch, AttentionPlan* plan) override;

  void Embedding(const Tensor& out, const Tensor& ids, const PackedMatrix& table,
                 float scale) override;
  void RmsNorm(const Tensor& out, const Tensor& x, const Tensor& weight, float epsilon) override;
  void AddRmsNorm(const Tensor& out, const Tensor& residual, const Tensor& x, const Tensor& weight,
                  float epsilon) override;
  void Linear(const Tensor& out, const Tensor& x, const PackedMatrix& weight, const Tensor& bias,
              LinearEpilogue epilogue) override;
  void RmsNormLinear(const Tensor& out, const Tensor& x, const Tensor& norm_weight, float epsilon,
                     const PackedMatrix& weight, const Tensor& bias,
                     LinearEpilogue epilogue) override;
  void SiluAndMul(const Tensor& out, const Tensor& gate_up) override;
  void LayerNorm(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 float epsilon) override;
  void Add(const Tensor& residual, const Tensor& x) override;
  void Convert(const Tensor& out, const Tensor& x) override;
  void GeluAndMul(const Tensor& out, const Tensor& gate_up) override;
  void Gelu(const Tensor& out, const Tensor& x) override;
  void SoftCap(const Tensor& x, float cap) override;
  void QkNormRopeWriteKv(const Tensor& out, const Tensor& qkv, const QkRope& rope,
                         const LayerKv& kv, const AttentionPlan& plan) override;
  void PagedAttention(const Tensor& out, const Tensor& q, const LayerKv& kv,
                      const AttentionOptions& options, const AttentionPlan& plan) override;
  void GatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) override;
  void RouteTopK(const Tensor& expert_ids, const Tensor& weights, const Tensor& logits,
                 bool renormalize) override;
  void GroupByExpert(const ExpertPairs& pairs, const Tensor& expert_ids,
                     const Tensor& weights) override;
  void ExpertLinear(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                    const ExpertPairs& pairs, LinearEpilogue epilogue) override;
  void AddWeightedRows(const Tensor& residual, const Tensor& x, const Tensor& rows,
                       const Tensor& weights) override;
  void Argmax(const Tensor& ids, const Tensor& logits) override;
  void LogSumExp(const Tensor& out, const Tensor& logits) override;
  void ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) override;
};

// Shared by rope.cc and attention.cc: where a token's K or V of one head lies.
inline int64_t ReferenceKvOffset(const LayerKv& kv, int64_t slot, int head) {
  const int64_t block = slot / kv.block_size;
  const int64_t token = slot % kv.block_size;
  return ((block * kv.num_kv_heads + head) * kv.block_size + token) * kv.head_dim;
}

}  // namespace tandem
