#pragma once

// A Backend that runs every op of another one and notes how long it took.
// Thread, failure: as the backend inside, which it owns. Times are CPU seconds of the whole
// process, so what others do on the machine does not count; asking for them costs some 0.3 us per
// op.

#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace tandem {

enum class OpKind { kLinear, kAttention, kRope, kRowWise, kLogits, kHostWork };
inline constexpr int kNumOpKinds = 6;

double ProcessCpuSeconds();

struct OpTime {
  OpKind kind;
  double seconds;
};

class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(std::unique_ptr<Backend> inside) : inside_(std::move(inside)) {}

  // Of all ops since ResetTimes, in their order.
  const std::vector<OpTime>& times() const { return times_; }
  void ResetTimes() { times_.clear(); }
  // Of all matrices packed so far, the embedding's included.
  int64_t packed_bytes() const { return packed_bytes_; }
  int64_t largest_packed_bytes() const { return largest_packed_bytes_; }

  std::string description() const override { return inside_->description(); }
  DType activation_dtype() const override { return inside_->activation_dtype(); }
  DType residual_dtype() const override { return inside_->residual_dtype(); }
  int num_threads() const override { return inside_->num_threads(); }
  StatusOr<OwnedTensor> Allocate(DType dtype, std::initializer_list<int64_t> shape) override;
  StatusOr<OwnedTensor> Upload(const Tensor& host, DType dtype) override;
  void CopyIn(const Tensor& out, const Tensor& host) override;
  void CopyOut(const Tensor& host, const Tensor& x) override;
  StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const Tensor> row_blocks,
                                               WeightFormat format) override;
  StatusOr<std::unique_ptr<PackedMatrix>> PackGated(std::span<const Tensor> row_blocks,
                                                    WeightFormat format) override;
  StatusOr<std::unique_ptr<PackedExperts>> PackExperts(
      std::vector<std::unique_ptr<PackedMatrix>> experts) override;
  int64_t KvBytesPerBlock(const KvCacheSpec& spec) const override;
  // Filled with small numbers: pages that were never written would all be one page of zeros.
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
  void LayerNorm(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 float epsilon) override;
  void Add(const Tensor& residual, const Tensor& x) override;
  void Convert(const Tensor& out, const Tensor& x) override;
  void Linear(const Tensor& out, const Tensor& x, const PackedMatrix& weight, const Tensor& bias,
              LinearEpilogue epilogue) override;
  void RmsNormLinear(const Tensor& out, const Tensor& x, const Tensor& norm_weight, float epsilon,
                     const PackedMatrix& weight, const Tensor& bias,
                     LinearEpilogue epilogue) override;
  void SiluAndMul(const Tensor& out, const Tensor& gate_up) override;
  void GeluAndMul(const Tensor& out, const Tensor& gate_up) override;
  void Gelu(const Tensor& out, const Tensor& x) override;
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
  void SoftCap(const Tensor& x, float cap) override;
  void Argmax(const Tensor& ids, const Tensor& logits) override;
  void LogSumExp(const Tensor& out, const Tensor& logits) override;
  void ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) override;

 private:
  void Count(const PackedMatrix& matrix);
  template <class F>
  void Timed(OpKind kind, F run);

  std::unique_ptr<Backend> inside_;
  std::vector<OpTime> times_;
  int64_t packed_bytes_ = 0;
  int64_t largest_packed_bytes_ = 0;
};

}  // namespace tandem
