#pragma once

// The Backend on one NVIDIA GPU: own kernels, and cuBLASLt for large matrix products where it is
// installed. One stream carries everything in order, so an op returns before it is done; CopyOut
// waits. Activations and KV cache are bf16 (or float32, for tests), the residual stream float32.
// Thread: engine loop. Owns: the stream, device scratch, pinned staging memory.
// KV layout: [block][kv_head][token][head_dim], K and V apart.
// Matrices: [n, k] row-major, rows padded with zeros to 16 bytes.
// Sums run in an order of the kernel's own, so bits may differ between batch sizes.

#include <cuda_runtime.h>

#include <array>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/compute_pool.h"
#include "kernels/cuda/flashinfer/plan.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries/cublaslt.h"
#include "kernels/op_checks.h"

namespace tandem {

inline constexpr int64_t kMaxCudaExperts = 1024;  // of a layer

class CudaMatrix final : public PackedMatrix {
 public:
  CudaMatrix(int64_t k, bool is_gated, OwnedTensor memory)
      : PackedMatrix(memory.view().shape[0], k, is_gated), memory_(std::move(memory)) {}
  int64_t num_bytes() const override { return memory_.view().NumBytes(); }
  int64_t stride() const { return memory_.view().row_stride; }  // elements
  const void* data() const { return memory_.view().data; }

 private:
  OwnedTensor memory_;  // [n, stride]
};

// Some rows (query, head) of one request, for one KV head: row r of the request is head
// r % heads_per_kv_head of its query r / heads_per_kv_head.
struct CudaAttentionItem {
  int32_t table_begin = 0;  // of the request's row in the block table
  int32_t first_token = 0;  // the request's, in q and out
  int32_t num_queries = 0;  // of the request
  int32_t context_len = 0;
  int32_t first_row = 0;
};

class CudaAttentionPlan final : public AttentionPlan {
 public:
  using AttentionPlan::SetBatch;
  AttentionShape shape;
  int64_t max_tokens = 0;
  int64_t max_requests = 0;
  bool uses_flashinfer = false;
  // What PlanAttention tells the device: items, then FlashInfer's words.
  OwnedTensor host_work;           // pinned [.] i32, for batches without a place for it
  OwnedTensor device_work;         // the same
  OwnedTensor partial;             // [., head_dim + 2] f32: sums, maximum, total of a row and split
  OwnedTensor num_arrived;         // [.] i32: splits of an item and KV head that are done
  OwnedTensor flashinfer_partial;  // [., heads * head_dim], and the weight of each row and head:
  OwnedTensor flashinfer_lse;      // [., heads] f32
  int64_t work_copied = 0;         // mark: host_work may be filled again
  // Of this step.
  const CudaAttentionItem* items = nullptr;  // on the device
  int64_t num_items = 0;
  bool is_decode = false;  // one query per request
  FlashInferPlan flashinfer;
  int64_t num_decode_items = 0;               // the first ones, of what is its decode part
  const int32_t* flashinfer_words = nullptr;  // on the device
};

class CudaCapturedOps final : public CapturedOps {
 public:
  explicit CudaCapturedOps(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaCapturedOps() override { cudaGraphExecDestroy(graph_); }
  cudaGraphExec_t graph() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

class CudaBackend final : public Backend {
 public:
  // UNAVAILABLE: no driver, no such device.
  static StatusOr<std::unique_ptr<Backend>> Create(const CudaBackendOptions& options);
  ~CudaBackend() override;

  std::string description() const override;
  DType activation_dtype() const override { return dtype_; }
  DType residual_dtype() const override { return DType::kF32; }
  int num_threads() const override { return pool_.num_threads(); }
  bool memory_is_host() const override { return false; }
  DeviceMemory device_memory() const override;
  Status status() const override { return status_; }

  StatusOr<OwnedTensor> Allocate(DType dtype, std::initializer_list<int64_t> shape) override;
  StatusOr<OwnedTensor> Upload(const Tensor& host, DType dtype) override;
  void CopyIn(const Tensor& out, const Tensor& host) override;
  void CopyOut(const Tensor& host, const Tensor& x) override;
  StatusOr<OwnedTensor> AllocateStaging(DType dtype, std::initializer_list<int64_t> shape) override;
  void StartCopyIn(const Tensor& out, const Tensor& staging) override;
  void StartCopyOut(const Tensor& staging, const Tensor& x) override;
  int64_t SetMark() override;
  void WaitFor(int64_t mark) override;
  int64_t SetTimePoint() override;
  double SecondsBetween(int64_t from, int64_t to) override;
  bool can_capture() const override { return true; }
  void BeginCapture() override;
  StatusOr<std::unique_ptr<CapturedOps>> EndCapture() override;
  void Replay(const CapturedOps& ops) override;
  StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const Tensor> row_blocks,
                                               WeightFormat format) override;
  StatusOr<std::unique_ptr<PackedMatrix>> PackGated(std::span<const Tensor> row_blocks,
                                                    WeightFormat format) override;
  StatusOr<std::unique_ptr<PackedExperts>> PackExperts(
      std::vector<std::unique_ptr<PackedMatrix>> experts) override;
  int64_t KvBytesPerBlock(const KvCacheSpec& spec) const override;
  StatusOr<std::unique_ptr<KvCache>> AllocateKvCache(const KvCacheSpec& spec) override;

  StatusOr<std::unique_ptr<DeviceSampler>> MakeSampler(const DeviceSamplerLimits& limits) override;

  StatusOr<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape,
                                                             int64_t max_tokens,
                                                             int64_t max_requests) override;
  void PlanAttention(const AttentionBatch& batch, AttentionPlan* plan) override;
  int64_t AttentionWorkSize(const AttentionShape& shape, int64_t num_tokens,
                            int64_t num_requests) const override;

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
  explicit CudaBackend(const CudaBackendOptions& options);
  Status Init(int device);
  OpTypes types() const { return {dtype_, DType::kF32}; }
  OverlappingStream queue() const { return {stream_, can_overlap_}; }
  StatusOr<std::unique_ptr<PackedMatrix>> PackRows(std::span<const Tensor> row_blocks,
                                                   WeightFormat format, bool is_gated);
  // The next random matrix, in the first columns of this one.
  void FillRandom(const Tensor& matrix, int64_t columns);
  // Whether so many rows are multiplied as decode steps are.
  bool IsSkinny(int64_t num_rows) const;
  // Linear, or RmsNormLinear where there is a norm_weight, of few rows.
  void MultiplySkinny(const Tensor& out, const Tensor& x, const CudaMatrix& matrix,
                      const Tensor& bias, LinearEpilogue epilogue, const Tensor& norm_weight,
                      float epsilon);
  // y = x W^T + bias, or y += it.
  void Multiply(const Tensor& y, const Tensor& x, const CudaMatrix& weight, const Tensor& bias,
                bool accumulate);
  // Whether one launch multiplies for all experts, and the host need not know what rows each has.
  bool IsForExpertKernels(int64_t num_pairs, int64_t num_experts) const;
  void MultiplyExperts(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                       const ExpertPairs& pairs, LinearEpilogue epilogue);
  FlashInferShape FlashInferShapeOf(const AttentionShape& shape) const;
  bool UsesFlashInfer(const AttentionShape& shape) const;
  // Attention of the first num_items items by the project's own kernels.
  void AttendItems(const Tensor& out, const Tensor& q, const LayerKv& kv,
                   const AttentionOptions& options, const CudaAttentionPlan& plan,
                   int64_t num_items, bool is_decode);
  // Attention of all requests, by FlashInfer as far as it can. False: it cannot.
  bool AttendByFlashInfer(const Tensor& out, const Tensor& q, const LayerKv& kv,
                          const AttentionOptions& options, const CudaAttentionPlan& plan);
  void LaunchFlashInferPart(const Tensor& out, const Tensor& q, const LayerKv& kv,
                            const AttentionOptions& options, const CudaAttentionPlan& plan,
                            const FlashInferLaunch& launch);
  // Into how many splits each item's context is cut, so that so many items fill the device.
  int64_t NumSplits(int64_t num_items, int64_t num_kv_heads) const;
  // A matrix [rows, columns] of the activation type, valid until its next use; nothing (and
  // status() says so) where there is no memory for it.
  Tensor Scratch(OwnedTensor* memory, int64_t rows, int64_t columns);

  DType dtype_;
  ComputePool pool_;  // for rows that are sampled on the host
  cudaStream_t stream_ = nullptr;
  // Mark i is the event i % kNumMarks, as long as no later mark has taken it over.
  static constexpr int64_t kNumMarks = 8;
  std::array<cudaEvent_t, kNumMarks> marks_ = {};
  int64_t last_mark_ = 0;
  bool is_capturing_ = false;
  bool has_captured_ = false;
  int num_multiprocessors_ = 1;
  bool can_overlap_ = false;  // a kernel may begin while another ends
  AttentionBackend attention_;
  std::optional<RandomMatrices> random_;
  uint64_t num_random_matrices_ = 0;
  mutable FlashInferShape flashinfer_shape_;  // of the shape that was asked for last
  std::string device_name_;
  std::unique_ptr<CublasLt> cublaslt_;  // null: not installed
  OwnedTensor staging_;  // pinned, two halves, for weights on their way to the device
  std::array<int64_t, 2> staging_sent_ = {};  // mark: the half may be filled again
  size_t staging_half_ = 0;
  OwnedTensor normed_;                 // what RmsNormLinear multiplies
  OwnedTensor ungated_;                // what a gate is yet to be applied to
  OwnedTensor expert_begin_;           // pinned, ExpertPairs::begin where the host has to know it
  int64_t expert_begin_copied_ = 0;    // mark: it is there
  std::vector<OwnedTensor> outgrown_;  // scratch that captured ops may still name
  Status status_;
  // Of time points, as marks_ are of marks.
  static constexpr int64_t kNumTimePoints = 8;
  std::array<cudaEvent_t, kNumTimePoints> time_points_ = {};
  int64_t last_time_point_ = 0;
};

}  // namespace tandem
