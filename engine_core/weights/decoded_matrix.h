#pragma once

// A quantized matrix out of its file's packing: codes, scales and zeros that a MatrixSource views.
// Values; owns its memory. Movable: a source stays valid while the vectors' contents live.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/matrix_source.h"

namespace tandem {

struct DecodedMatrix {
  DecodedMatrix(DType type, int64_t num_rows, int64_t num_columns)
      : dtype(type),
        rows(num_rows),
        columns(num_columns),
        values(static_cast<size_t>(num_rows * num_columns * SizeOf(type))) {}
  DecodedMatrix(DecodedMatrix&&) = default;

  DType dtype;  // kI8: codes; kBf16, kF32: numbers
  int64_t rows;
  int64_t columns;
  int64_t group_size = 0;         // columns that share a scale and a zero; 0: all
  std::vector<std::byte> values;  // [rows, columns]
  std::vector<float> scales;      // [rows, groups]; empty: 1
  std::vector<float> zeros;       // [rows, groups]; empty: 0
  // As MatrixSource's.
  std::vector<int32_t> column_groups = {};  // their number is that of a row's scales
  CodeKind code_kind = CodeKind::kInteger;
  std::vector<float> table = {};

  template <class T>
  T* Row(int64_t row) {
    return reinterpret_cast<T*>(values.data()) + row * columns;
  }
  int64_t num_groups() const {
    if (!column_groups.empty()) return static_cast<int64_t>(scales.size()) / rows;
    return group_size == 0 ? 1 : (columns + group_size - 1) / group_size;
  }
  MatrixSource source();
};

}  // namespace tandem
