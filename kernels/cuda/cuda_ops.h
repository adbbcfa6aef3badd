#pragma once

// The ops on one NVIDIA GPU: own kernels, and cuBLASLt for large matrix products where it is
// installed. Activations and KV cache are bf16 (or float32, for tests), the residual stream
// float32.
// Thread: engine loop. Owns: device scratch.
// KV layout: [block][kv_head][token][head_dim], K and V apart.
// Matrices: [n, k] row-major, rows padded with zeros to 16 bytes; or in codes (coded_layout.h).
// Each kernel sums in its own order, so bits may differ between batch sizes.

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "kernels/cuda/coded_layout.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/flashinfer/plan.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries/cublaslt.h"
#include "kernels/ops.h"

namespace tandem {

inline constexpr int64_t kMaxCudaExperts = 1024;  // of a layer

struct ExpertList;  // expert_rows.cuh

// Rows of numbers of the compute type.
struct DenseRows {
  const void* data = nullptr;
  int64_t stride = 0;  // elements
  int64_t n = 0, k = 0;
};

// Rows of a matrix that are kept in codes of one layout.
struct CodedPart {
  CodedLayout layout;
  int64_t first_row = 0;  // of the matrix
  // Their scheme rounds activations to e4m3 as well.
  bool has_float8_activations = false;
  OwnedTensor memory;  // [layout.num_bytes()] i8
  OwnedTensor order;   // [k] i32: the column of the matrix at each place; empty: the same

  const uint8_t* codes() const { return static_cast<const uint8_t*>(memory.view().data); }
  const int32_t* order_data() const { return static_cast<const int32_t*>(order.view().data); }
};

// Numbers, or codes in one or several parts.
class CudaMatrix final : public PackedMatrix {
 public:
  CudaMatrix(int64_t k, bool is_gated, OwnedTensor memory)
      : PackedMatrix(memory.view().shape[0], k, is_gated), memory_(std::move(memory)) {}
  CudaMatrix(int64_t n, int64_t k, bool is_gated, std::vector<CodedPart> parts)
      : PackedMatrix(n, k, is_gated), parts_(std::move(parts)) {}
  int64_t num_bytes() const override {
    int64_t bytes = memory_.view().NumBytes();
    for (const CodedPart& part : parts_) {
      bytes += part.memory.view().NumBytes() + part.order.view().NumBytes();
    }
    return bytes;
  }
  bool is_coded() const { return !parts_.empty(); }
  const std::vector<CodedPart>& parts() const { return parts_; }
  // Of numbers.
  int64_t stride() const { return memory_.view().row_stride; }  // elements
  const void* data() const { return memory_.view().data; }
  DenseRows dense() const { return {.data = data(), .stride = stride(), .n = n(), .k = k()}; }

 private:
  OwnedTensor memory_;  // [n, stride]
  std::vector<CodedPart> parts_;
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

// Whether attention of one query per request runs on the tensor cores.
bool DecodesOnTensorCores(DType dtype, int head_dim, int group, int block_size);

// The tokens of one request in the states of a layer. Kernels run it and then the requests after it
// in its chain, each of which goes on from a state that an earlier one of them leaves in this step.
struct CudaStateRun {
  int32_t first_token = 0;
  int32_t num_tokens = 0;
  int32_t num_certain = 0;  // of them, those before its drafts
  int32_t first_position = 0;
  int32_t table_begin = 0;  // of the request's row in the block table
  int32_t is_first = 0;     // of its chain; else another run comes before it, or it is padding
  int32_t next = -1;        // in its chain
};

class CudaAttentionPlan final : public AttentionPlan {
 public:
  explicit CudaAttentionPlan(CudaDevice* device) : device_(device) {}
  void Fill(const AttentionBatch& batch) override;
  int64_t WorkSize(int64_t num_tokens, int64_t num_requests) const override;
  // Once the shape is set: Fill allocates nothing.
  void Reserve();

  AttentionShape shape;
  int64_t max_tokens = 0;
  int64_t max_requests = 0;
  bool uses_flashinfer = false;
  FlashInferShape flashinfer_shape;  // set if uses_flashinfer
  // The plan's numbers for the device: items, runs of states, then FlashInfer's words.
  OwnedTensor host_work;           // pinned [.] i32, for batches without host_work
  OwnedTensor device_work;         // the same
  OwnedTensor partial;             // [., head_dim + 2] f32: sums, maximum, total of a row and split
  OwnedTensor num_arrived;         // [.] i32: finished splits of an item and KV head
  OwnedTensor flashinfer_partial;  // [., heads * head_dim], and the weight of each row and head:
  OwnedTensor flashinfer_lse;      // [., heads] f32
  int64_t work_copied = 0;         // mark: host_work may be filled again
  // Of this step.
  const CudaAttentionItem* items = nullptr;  // on the device
  int64_t num_items = 0;
  bool is_decode = false;                    // one query per request
  const CudaStateRun* state_runs = nullptr;  // on the device, one for each request
  int64_t num_state_runs = 0;                // 0: no layer has states
  FlashInferPlan flashinfer;
  int64_t num_decode_items = 0;               // the first ones; FlashInfer's decode part
  const int32_t* flashinfer_words = nullptr;  // on the device

 private:
  void FillStateRuns(const AttentionBatch& batch, CudaStateRun* runs);

  CudaDevice* device_;
  std::vector<size_t> chain_heads_;  // of each sequence, the first of its chain
};

class CudaOps final : public Ops {
 public:
  CudaOps(DType dtype, CudaDevice* device);  // borrows the device
  // Before the first op, once the device is open. RESOURCE_EXHAUSTED: pinned memory.
  Status Open();
  // The same matrix as numbers.
  StatusOr<std::unique_ptr<PackedMatrix>> ToNumbers(const CudaMatrix& coded);
  bool has_cublaslt() const { return cublaslt_ != nullptr; }

 private:
#define TANDEM_OP(name, parameters, arguments) void Do##name parameters override;
#include "kernels/ops.def"

  OverlappingStream queue() const { return device_->queue(); }
  // Whether num_rows are few enough for the kernels of decode steps.
  bool IsSkinny(int64_t num_rows) const;
  // Whether these are so few that plain multiplications keep up with reading the weights.
  bool IsPlain(int64_t num_rows) const;
  // Whether cuBLASLt, and a kernel for what remains, multiplies few rows faster than ours.
  bool PrefersCublasLt(const Tensor& out, const Tensor& x, const CudaMatrix& matrix,
                       const Tensor& bias, LinearEpilogue epilogue);
  // Linear of few rows; RmsNormLinear if there is a norm_weight.
  void MultiplySkinny(const Tensor& out, const Tensor& x, const CudaMatrix& matrix,
                      const Tensor& bias, LinearEpilogue epilogue, const Tensor& norm_weight,
                      float epsilon);
  // y = x W^T + bias, or y += it.
  void Multiply(const Tensor& y, const Tensor& x, const DenseRows& weight, const Tensor& bias,
                bool accumulate);
  // y = x W^T + bias, of a gate's matrix, too.
  void MultiplyUngated(const Tensor& y, const Tensor& x, const CudaMatrix& weight,
                       const Tensor& bias);
  void Gate(const Tensor& out, const Tensor& gate_up, LinearEpilogue epilogue);
  // y += what the rows' pairs make of x. experts: null where there is one matrix.
  void AddPairs(const Tensor& y, const Tensor& x, const AdapterRows& adapters,
                const ExpertPairs* experts);
  // Linear of a matrix in codes.
  void MultiplyCoded(const Tensor& out, const Tensor& x, const CudaMatrix& matrix,
                     const Tensor& bias, LinearEpilogue epilogue);
  void MultiplyPart(const Tensor& y, const Tensor& x, const CodedPart& part, const Tensor& bias,
                    bool accumulate);
  // Rounds x to e4m3 too, and multiplies by cuBLASLt. False: it cannot, and nothing was done.
  bool MultiplyFloat8(const Tensor& y, const Tensor& x, const CodedPart& part, const Tensor& bias,
                      bool accumulate);
  // x with its columns in the part's order; x itself where that is the same. Empty: no memory.
  Tensor InOrder(const Tensor& x, const CodedPart& part);
  void MultiplyCodedExperts(const Tensor& out, const Tensor& x, const CodedPart& shape,
                            const ExpertList& experts, int64_t num_chosen, const Tensor& bias);
  // y += bias, row by row.
  void AddBias(const Tensor& y, const Tensor& bias);
  void EmbedCoded(const Tensor& out, const Tensor& ids, const CudaMatrix& table, float scale);
  // out[i, :] = rows [first, first + out.rows()) of the part, as numbers; their columns in the
  // order of the matrix, or of the part.
  void Expand(const Tensor& out, const CodedPart& part, int64_t first, bool in_order);
  // Whether one launch multiplies for all experts, so that the host need not know their rows.
  bool IsForExpertKernels(int64_t num_pairs, int64_t num_experts) const;
  void MultiplyExperts(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                       const ExpertPairs& pairs, LinearEpilogue epilogue, const Tensor& bias);
  void MultiplyExpertsUngated(const Tensor& y, const Tensor& x, const PackedExperts& experts,
                              const ExpertPairs& pairs);
  // The rows of each expert, from begin[e] to begin[e + 1]. Waits for them.
  const int32_t* AwaitExpertBegins();
  // Attention of the first num_items items by this project's kernels.
  void AttendItems(const Tensor& out, const Tensor& q, const LayerKv& kv,
                   const AttentionOptions& options, const CudaAttentionPlan& plan,
                   int64_t num_items, bool is_decode);
  // Attention of all requests, by FlashInfer where it has a kernel. False: nothing was done.
  bool AttendByFlashInfer(const Tensor& out, const Tensor& q, const LayerKv& kv,
                          const AttentionOptions& options, const CudaAttentionPlan& plan);
  void LaunchFlashInferPart(const Tensor& out, const Tensor& q, const LayerKv& kv,
                            const AttentionOptions& options, const CudaAttentionPlan& plan,
                            const FlashInferLaunch& launch);
  // The number of splits of each item's context with which num_items fill the device.
  int64_t NumSplits(int64_t num_items, int64_t num_kv_heads) const;
  // A matrix [rows, columns], valid until its next use. Empty if there is no memory for it;
  // Device::status() reports that.
  Tensor Scratch(OwnedTensor* memory, DType dtype, int64_t rows, int64_t columns);

  DType dtype_;
  CudaDevice* device_;
  std::unique_ptr<CublasLt> cublaslt_;  // null: not installed
  OwnedTensor normed_;                  // the normalised input of RmsNormLinear
  OwnedTensor ungated_;                 // a product before its gate is applied
  OwnedTensor pair_sums_;               // [T, ranks] f32: x A^T of each row
  OwnedTensor expanded_;                // rows of a matrix in codes, as numbers
  OwnedTensor ordered_;                 // x with its columns in the order of a part
  OwnedTensor float8_x_;                // x in e4m3
  OwnedTensor float8_scales_;           // of the rows of x
  OwnedTensor expert_begin_;            // pinned, ExpertPairs::begin if the host needs it
  int64_t expert_begin_copied_ = 0;     // mark: the copy is done
  std::vector<OwnedTensor> outgrown_;   // scratch that captured ops may still name
};

}  // namespace tandem
