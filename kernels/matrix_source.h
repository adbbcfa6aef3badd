#pragma once

// What Backend::Pack reads: a weight matrix [n, k] in host memory, as numbers, as blocks of bytes
// (kernels/block_format.h), or as codes:
//   w[n, k] = (values[n, k] - zeros[n, k / group_size]) * scales[n, k / group_size]
// Numbers are values without scales and zeros. Codes are the integers of a quantized checkpoint,
// one a byte: 4-bit codes as they are, unsigned 8-bit codes and their zeros less 128, twice the
// number for the halves of e2m1. Or codes stand for other numbers (CodeKind). A part of a matrix
// (Rows, Columns) is a source as well, without a copy. Values, any thread; the memory belongs to
// the maker of the source. Failure: a part that does not fit is our own mistake (CHECK).

#include <cstdint>
#include <span>

#include "kernels/block_format.h"
#include "kernels/code_kind.h"
#include "kernels/tensor.h"

namespace tandem {

struct MatrixSource {
  Tensor values;           // [n, k] f32, bf16, f16 or i8; of blocks: [n, bytes of a row] i8
  Tensor scales;           // [n, groups] f32; empty: 1
  Tensor zeros;            // [n, groups] f32; empty: 0
  int64_t group_size = 0;  // columns that share a scale and a zero; 0: all columns
  // [k] i32: the group of each column, where groups do not lie side by side; else empty.
  Tensor column_groups;
  CodeKind code_kind = CodeKind::kInteger;
  const float* table = nullptr;         // 16 numbers of kTable
  const BlockFormat* blocks = nullptr;  // null: values are numbers or codes
  int64_t first_column = 0;             // of blocks, in the stored rows
  int64_t num_columns = 0;              // of blocks
  // Its scheme rounds activations as well: of int8 rows to int8 per token, of e4m3 to e4m3.
  bool is_w8a8 = false;
  // The values are pages of a mapped file.
  bool is_mapped = false;

  MatrixSource() = default;
  MatrixSource(const Tensor& numbers) : values(numbers) {}  // NOLINT(google-explicit-constructor)
  // bytes: [n, bytes of a row] i8.
  MatrixSource(const Tensor& bytes, const BlockFormat& format)
      : values(bytes),
        blocks(&format),
        num_columns(bytes.shape[1] / format.num_bytes * format.size) {}

  int64_t rows() const { return values.shape[0]; }
  int64_t columns() const { return blocks != nullptr ? num_columns : values.shape[1]; }
  int64_t num_groups() const {
    if (!column_groups.empty()) return scales.shape[1];
    return group_size == 0 ? 1 : (columns() + group_size - 1) / group_size;
  }

  // w[begin : begin + count, :]
  MatrixSource Rows(int64_t begin, int64_t count) const;
  // w[:, begin : begin + count].  REQUIRES: with groups, begin is a multiple of group_size.
  MatrixSource Columns(int64_t begin, int64_t count) const;

  // Whether the codes are integers, and their groups lie side by side.
  bool AreIntegers() const {
    return values.dtype == DType::kI8 && blocks == nullptr && code_kind == CodeKind::kInteger &&
           column_groups.empty();
  }
  // Whether each row is int8 numbers times one scale, so that WeightFormat::kInt8 takes them as
  // they are.
  bool IsInt8Rows() const { return AreIntegers() && group_size == 0 && zeros.empty(); }

  // out[i] = w[row, begin + i] for i < count, as f32 or bf16; numbers also in their own type.
  void Read(int64_t row, int64_t begin, int64_t count, DType dtype, void* out) const;
  // Gives the pages of rows that have been read back to the kernel, so that packing a matrix does
  // not keep it in memory twice. They may be read again.
  void GiveBack(int64_t first_row, int64_t count) const;

 private:
  void ReadBlocks(int64_t row, int64_t begin, int64_t count, DType dtype, void* out) const;
  // Number i of a row, before zero and scale.
  float CodeAt(const void* row, int64_t i) const;
  void ReadCodes(int64_t row, int64_t begin, int64_t count, DType dtype, void* out) const;
};

// Matrices of equal k, one below the other. Borrows them.
class StackedRows {
 public:
  explicit StackedRows(std::span<const MatrixSource> blocks);
  int64_t rows() const { return num_rows_; }
  int64_t columns() const { return blocks_[0].columns(); }
  // The block that has row n of the stack, and the row's place in it.
  struct Row {
    const MatrixSource* block = nullptr;
    int64_t row = 0;
  };
  Row Find(int64_t n) const;
  // As MatrixSource::Read.
  void Read(int64_t n, int64_t begin, int64_t count, DType dtype, void* out) const;
  // As MatrixSource::GiveBack, of rows [begin, end) of the stack.
  void GiveBack(int64_t begin, int64_t end) const;

 private:
  std::span<const MatrixSource> blocks_;
  int64_t num_rows_ = 0;
};

}  // namespace tandem
