#pragma once

// The ops for CPUs: an op is cut into work for the pool, which runs the kernels of the chosen
// instruction set (kernel_table.h). One .cc per op family. Thread, ownership, promises as in
// kernels/ops.h: the cut changes no bit of a result.
// Layouts: weights as in cpu_matrix.h, the KV cache in tiles of 32 tokens (kernel_table.h), padded
// with zeros.

#include <span>
#include <vector>

#include "kernels/compute_pool.h"
#include "kernels/cpu/cpu_matrix.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace tandem {

// The queries of a step, cut into items that a thread computes at once.
class CpuPlan final : public AttentionPlan {
 public:
  CpuPlan(const AttentionShape& shape, int64_t max_tokens, int64_t max_requests);
  void Fill(const AttentionBatch& batch) override;
  std::span<const AttentionItem> items() const { return items_; }
  int queries_per_item() const { return queries_per_item_; }
  int64_t num_keys() const { return num_keys_; }  // (query, key) pairs, to estimate an item's time

 private:
  int64_t max_tokens_;
  int64_t max_requests_;
  int queries_per_item_;
  int64_t num_keys_ = 0;
  std::vector<AttentionItem> items_;
};

// Heads in the cache and in the kernels' scratch are rounded up to this many numbers.
constexpr int64_t PaddedHeadDim(int head_dim) { return (head_dim + 15) / 16 * 16; }

// Query heads of one KV head that a thread takes at once.
int HeadsAtOnce(int heads_per_kv_head);

// Scratch that only its owner grows. Dies when there is no memory.
OwnedTensor AllocateScratch(DType dtype, int64_t size);

class CpuOps final : public Ops {
 public:
  // Borrows both.
  CpuOps(DType dtype, const KernelTable& table, ComputePool* pool);

  // Allocates the scratch that PagedAttention needs for this shape, so that no step has to.
  void ReserveAttentionScratch(const AttentionShape& shape);

 private:
#define TANDEM_OP(name, parameters, arguments) void Do##name parameters override;
#include "kernels/ops.def"

  const TypedKernels& kernels() const { return dtype_ == DType::kBf16 ? table_.bf16 : table_.f32; }

  // Runs function over [0, num_items), where an item takes about `item_ns` nanoseconds of one
  // thread, in chunks that take longer than claiming them.
  void ForEach(int64_t num_items, int64_t item_ns, ThreadRangeFunction function);
  // Calls run(sequence, piece) for each piece of each sequence, of about `piece_ns` nanoseconds. A
  // sequence that goes on from a state that this step leaves comes after it.
  template <class Run>
  void ForEachPiece(const AttentionPlan& plan, int block_size, int64_t pieces, int64_t piece_ns,
                    const Run& run);

  // A thread's own scratch of at least this many floats; it only grows.
  float* Scratch(int thread, int64_t floats);
  uint32_t* PackedRows(int64_t units);
  // A tensor [rows, columns] act in scratch that only grows.
  Tensor Room(OwnedTensor* scratch, int64_t rows, int64_t columns);

  // What Linear multiplies: x itself, or its norm when `norm_weight` is not empty.
  struct LinearInput {
    const Tensor& x;
    const Tensor& norm_weight;
    float epsilon;
  };
  // terms: of the rows, or null.
  void RunLinear(const Tensor& out, const LinearInput& input, const CpuMatrix& matrix,
                 const Tensor& bias, LinearEpilogue epilogue, const AdapterTerm* terms = nullptr);
  // Of any format and gate.
  void RunAnyLinear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                    const Tensor& bias, LinearEpilogue epilogue, const AdapterTerm* terms);
  // What adapters add to the rows of a product with x, by row; null: nothing. Valid until its next
  // use.
  const AdapterTerm* AdapterTerms(const Tensor& x, const AdapterRows& adapters);
  // The input as the kernels read it: packed into tiles when there are many rows or k is odd.
  void PackActivations(const LinearInput& input, LinearTask* task);

  // Of the integer formats (quantized_linear.cc).
  void QuantizeActivations(const Tensor& x, const RowForm& form, const CpuMatrix& weight,
                           LinearTask* task);
  void QuantizedEmbedding(const Tensor& out, const Tensor& ids, const CpuMatrix& table,
                          float scale);

  // Of matrices in codes (pack_coded.cc, linear.cc).
  void CodedEmbedding(const Tensor& out, const Tensor& ids, const CpuMatrix& table, float scale);

  // Of matrices in blocks (block_linear.cc). `task` has what RunLinear sets for every format.
  void RunBlockLinear(const Tensor& x, const CpuMatrix& matrix, const LinearTask& task);
  void QuantizeBlocks(const Tensor& x, uint32_t* room, BlockTask* task);
  void MultiplyBlocks(const CpuMatrix& matrix, const BlockTask& task);
  void StoreAdaptedBlocks(const LinearTask& output, const Tensor& sums);
  void BlockEmbedding(const Tensor& out, const Tensor& ids, const CpuMatrix& table, float scale);

  // What one AdapterTerms needs; it only grows.
  struct AdapterBatch {
    std::vector<int32_t> slots;  // by row; -1: none
    std::vector<size_t> begin;   // by slot, of its rows in `order`
    std::vector<size_t> next;
    std::vector<int64_t> order;  // rows that have an adapter, by slot
    // Of those rows: the row of x, and its product with A.
    std::vector<const void*> rows;
    std::vector<float*> sums;
    OwnedTensor memory;              // of the sums
    std::vector<AdapterTerm> terms;  // by row
    std::vector<AdapterInputsTask> pieces;

    void Sort(const AdapterRows& adapters, int64_t num_rows);
  };

  DType dtype_;
  const KernelTable& table_;
  ComputePool* pool_;
  std::vector<OwnedTensor> scratch_;  // by thread
  OwnedTensor packed_rows_;
  OwnedTensor normed_, gate_up_;  // of integer matrices
  AdapterBatch adapter_batch_;
};

}  // namespace tandem
