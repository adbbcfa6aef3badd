#pragma once

// The backend for CPUs: checks shapes, cuts ops into work for the pool, and runs the kernels of the
// best instruction set (kernel_table.h). One .cc per op family. Thread, ownership, promises as in
// backend.h: how work is cut changes no bit of a result.
// Layouts: weights in panels of 64 columns, `[n / 64][k / 2][64][2]` (bf16), `[n / 64][k][64]`
// (float32), `[n / 64][k / 4][64][4]` (int8, unsigned), int4 as LinearTask says; the KV cache in
// tiles of 32 tokens (kernel_table.h). Both are padded with zeros.

#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/compute_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/op_checks.h"

namespace tandem {

class CpuMatrix final : public PackedMatrix {
 public:
  CpuMatrix(int64_t n, int64_t k, bool is_gated, int64_t k_units, OwnedTensor units)
      : PackedMatrix(n, k, is_gated), k_units_(k_units), units_(std::move(units)) {}
  // Integers, with the rows' scales.
  CpuMatrix(int64_t n, int64_t k, bool is_gated, int64_t k_units, OwnedTensor units,
            WeightFormat format, OwnedTensor scales)
      : PackedMatrix(n, k, is_gated),
        format_(format),
        k_units_(k_units),
        units_(std::move(units)),
        scales_(std::move(scales)) {}
  int64_t num_bytes() const override {
    return units_.view().NumBytes() + scales_.view().NumBytes();
  }
  WeightFormat format() const { return format_; }
  bool is_quantized() const { return format_ != WeightFormat::kCompute; }
  const float* scales() const { return scales_.view().Data<float>(); }
  int64_t k_units() const { return k_units_; }
  static int64_t NumPanels(int64_t n, bool is_gated) {
    const int64_t columns = is_gated ? n / 2 : n;
    const int64_t per_panel = is_gated ? kPanelColumns / 2 : kPanelColumns;
    return (columns + per_panel - 1) / per_panel;
  }
  // Gate and up share a panel where the numbers are not integers.
  int64_t num_panels() const { return NumPanels(n(), is_gated() && !is_quantized()); }
  uint32_t* units() const { return static_cast<uint32_t*>(units_.view().data); }

 private:
  WeightFormat format_ = WeightFormat::kCompute;
  int64_t k_units_;
  OwnedTensor units_;
  OwnedTensor scales_;
};

// The queries of a step, cut into pieces that a thread attends to at once.
class CpuPlan final : public AttentionPlan {
 public:
  CpuPlan(const AttentionShape& shape, int64_t max_tokens, int64_t max_requests);
  void Fill(const AttentionBatch& batch);
  std::span<const AttentionItem> items() const { return items_; }
  int64_t num_keys() const { return num_keys_; }  // (query, key) pairs, for the cut of work

 private:
  int64_t max_tokens_;
  int64_t max_requests_;
  int queries_per_item_;
  int64_t num_keys_ = 0;
  std::vector<AttentionItem> items_;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(DType dtype, const KernelTable& table, int num_threads);

  std::string description() const override;
  DType activation_dtype() const override { return dtype_; }
  DType residual_dtype() const override { return DType::kF32; }
  int num_threads() const override { return pool_.num_threads(); }

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

 private:
  OpTypes types() const { return {dtype_, DType::kF32}; }
  const TypedKernels& kernels() const { return dtype_ == DType::kBf16 ? table_.bf16 : table_.f32; }
  int64_t PaddedDim(int head_dim) const { return (head_dim + 15) / 16 * 16; }

  // Runs function over [0, num_items), an item costing about `item_ns` nanoseconds of one thread:
  // in no chunks so short that claiming them costs more than doing them.
  void ForEach(int64_t num_items, int64_t item_ns, ThreadRangeFunction function);

  // A thread's own scratch of at least so many floats; grows, and then stays.
  float* Scratch(int thread, int64_t floats);
  uint32_t* PackedRows(int64_t units);
  // [rows, columns] act of such scratch.
  Tensor Room(OwnedTensor* scratch, int64_t rows, int64_t columns);
  StatusOr<std::unique_ptr<PackedMatrix>> PackPanels(std::span<const Tensor> row_blocks,
                                                     bool is_gated);
  // What Linear multiplies: x itself, or its norm when `norm_weight` is not empty.
  struct LinearInput {
    const Tensor& x;
    const Tensor& norm_weight;
    float epsilon;
  };
  void RunLinear(const Tensor& out, const LinearInput& input, const CpuMatrix& matrix,
                 const Tensor& bias, LinearEpilogue epilogue);
  // The input as the kernels want it: packed into tiles when rows are many or k is odd.
  void PackActivations(const LinearInput& input, LinearTask* task);

  // Of the integer formats (quantized_linear.cc).
  StatusOr<std::unique_ptr<PackedMatrix>> PackQuantized(std::span<const Tensor> row_blocks,
                                                        WeightFormat format, bool is_gated);
  void QuantizeActivations(const Tensor& x, const CpuMatrix& weight, LinearTask* task);
  void QuantizedEmbedding(const Tensor& out, const Tensor& ids, const CpuMatrix& table,
                          float scale);

  DType dtype_;
  const KernelTable& table_;
  ComputePool pool_;
  std::vector<OwnedTensor> scratch_;  // by thread
  OwnedTensor packed_rows_;
  OwnedTensor normed_, gate_up_;  // of integer matrices
};

}  // namespace tandem
