#pragma once

// Weights as the CPU kernels read them, and their packing.
// Layouts, padded with zeros: panels of 64 columns, `[n / 64][k / 2][64][2]` (bf16),
// `[n / 64][k][64]` (float32), `[n / 64][k / 4][64][4]` (int8, unsigned), int4 as LinearTask says,
// blocks as in block_panel.h.

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/status.h"
#include "kernels/compute_pool.h"
#include "kernels/cpu/block_panel.h"
#include "kernels/cpu/coded_panel.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/matrix_source.h"
#include "kernels/packed_matrix.h"
#include "kernels/tensor.h"

namespace tandem {

// The panels of a matrix in blocks. Rows of each source begin a panel of their own.
struct BlockPanels {
  OwnedTensor memory;
  std::vector<BlockPanelShape> shapes;  // of the sources
  std::vector<BlockPanel> panels;       // by rising column
};

// The panels of a matrix in codes.
struct CodedPanels {
  CodedPanels(const CodedShape& coded_shape, OwnedTensor bytes);
  CodedTask Panel(int64_t panel) const;
  // Of a matrix that is not gated.
  float Weight(int64_t n, int64_t k) const;

  CodedShape shape;
  OwnedTensor memory;
};

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
  // Blocks, as their source has them.
  CpuMatrix(int64_t n, int64_t k, bool is_gated, BlockPanels blocks)
      : PackedMatrix(n, k, is_gated),
        format_(WeightFormat::kStored),
        k_units_(k / 4),
        blocks_(std::make_unique<BlockPanels>(std::move(blocks))) {}
  // Codes that become numbers of `dtype` in each product.
  CpuMatrix(int64_t n, bool is_gated, DType dtype, CodedPanels coded)
      : PackedMatrix(n, coded.shape.k, is_gated),
        k_units_(dtype == DType::kBf16 ? (coded.shape.k + 1) / 2 : coded.shape.k),
        coded_(std::make_unique<CodedPanels>(std::move(coded))) {}
  int64_t num_bytes() const override {
    return units_.view().NumBytes() + scales_.view().NumBytes() +
           (coded_ != nullptr ? coded_->memory.view().NumBytes() : 0) +
           (blocks_ != nullptr ? blocks_->memory.view().NumBytes() : 0);
  }
  // Null unless the format is kStored.
  const BlockPanels* blocks() const { return blocks_.get(); }
  // Null unless it is codes; the format is kCompute then.
  const CodedPanels* coded() const { return coded_.get(); }
  WeightFormat format() const { return format_; }
  bool is_quantized() const { return format_ != WeightFormat::kCompute; }
  const float* scales() const { return scales_.view().Data<float>(); }
  int64_t k_units() const { return k_units_; }
  static int64_t NumPanels(int64_t n, bool is_gated) {
    const int64_t columns = is_gated ? n / 2 : n;
    const int64_t per_panel = is_gated ? kPanelColumns / 2 : kPanelColumns;
    return (columns + per_panel - 1) / per_panel;
  }
  int64_t num_panels() const { return NumPanels(n(), pairs_rows()); }
  uint32_t* units() const { return static_cast<uint32_t*>(units_.view().data); }

 private:
  // Gate and up share a panel unless the numbers are integers.
  bool pairs_rows() const override { return is_gated() && !is_quantized(); }

  WeightFormat format_ = WeightFormat::kCompute;
  int64_t k_units_;
  OwnedTensor units_;
  OwnedTensor scales_;
  std::unique_ptr<const BlockPanels> blocks_;
  std::unique_ptr<const CodedPanels> coded_;
};

// The row of a matrix [n, k] that column c of a panel holds; -1: none, a column of zeros.
int64_t RowOfColumn(int64_t panel, int64_t c, int64_t n, bool is_gated);

// What Backend::Pack does with checked blocks, on the pool's threads: kCompute in `dtype`, the
// integer formats, and kStored.
StatusOr<std::unique_ptr<PackedMatrix>> PackPanels(std::span<const MatrixSource> row_blocks,
                                                   DType dtype, bool is_gated, ComputePool* pool);
StatusOr<std::unique_ptr<PackedMatrix>> PackQuantized(std::span<const MatrixSource> row_blocks,
                                                      WeightFormat format, bool is_gated,
                                                      ComputePool* pool);
StatusOr<std::unique_ptr<PackedMatrix>> PackBlocks(std::span<const MatrixSource> row_blocks,
                                                   bool is_gated, ComputePool* pool);
// Null: the stacked matrices are no codes, or differ in more than their rows.
StatusOr<std::unique_ptr<PackedMatrix>> PackCoded(std::span<const MatrixSource> row_blocks,
                                                  DType dtype, bool is_gated, ComputePool* pool);

}  // namespace tandem
