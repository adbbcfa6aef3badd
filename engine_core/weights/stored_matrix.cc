#include "engine_core/weights/stored_matrix.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/shape_text.h"
#include "engine_core/weights/quantized/layouts.h"

namespace tandem {
namespace {

// A [columns, rows] matrix, its rows perhaps strided, as [rows, columns].
WeightTensor Transposed(const Tensor& stored) {
  const int64_t columns = stored.shape[0], rows = stored.shape[1], size = SizeOf(stored.dtype);
  std::vector<std::byte> turned(static_cast<size_t>(rows * columns * size));
  const auto* from = static_cast<const std::byte*>(stored.data);
  // In tiles of a cache line's width on both sides: a walk along a whole column would miss the
  // cache at each number.
  constexpr int64_t kTile = 32;
  auto turn_tile = [&](int64_t row_begin, int64_t column_begin) {
    const int64_t row_end = std::min(rows, row_begin + kTile);
    const int64_t column_end = std::min(columns, column_begin + kTile);
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t column = column_begin; column < column_end; ++column) {
        std::memcpy(turned.data() + (row * columns + column) * size,
                    from + (column * stored.row_stride + row) * size, static_cast<size_t>(size));
      }
    }
  };
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t column = 0; column < columns; column += kTile) turn_tile(row, column);
  }
  return WeightTensor(Tensor(nullptr, stored.dtype, {rows, columns}), std::move(turned));
}

StatusOr<WeightTensor> GetTensor(Weights& weights, const StoredMatrix& stored) {
  const int64_t rows = stored.is_transposed ? stored.columns : stored.rows;
  const int64_t columns = stored.is_transposed ? stored.rows : stored.columns;
  if (stored.stack_size == 0) return weights.Get(stored.name + ".weight", rows, columns);
  return weights.GetFromStack(stored.name, stored.stack_idx, stored.stack_size, rows, columns);
}

// The rows begin, begin + step, ... of a matrix.
Tensor StepRows(const Tensor& whole, Slice rows, int64_t step) {
  Tensor part = whole.Rows(rows.begin, rows.count == 0 ? 0 : (rows.count - 1) * step + 1);
  part.row_stride *= step;
  part.shape[0] = rows.count;
  return part;
}

// A part may begin within a group of columns that share a scale: then the numbers are the source.
DecodedMatrix WithoutGroups(const MatrixSource& source) {
  DecodedMatrix numbers(DType::kF32, source.rows(), source.columns());
  for (int64_t n = 0; n < source.rows(); ++n) {
    source.Read(n, 0, source.columns(), DType::kF32, numbers.Row<float>(n));
  }
  return numbers;
}

StatusOr<LoadedMatrix> DecodedPart(DecodedMatrix whole, const StoredMatrix& stored, bool is_w8a8) {
  const Slice rows = stored.rows_to_load(), columns = stored.columns_to_load();
  if (whole.group_size > 0 && columns.begin % whole.group_size != 0) {
    return DecodedPart(WithoutGroups(whole.source()), stored, is_w8a8);
  }
  MatrixSource part =
      whole.source().Rows(rows.begin, rows.count).Columns(columns.begin, columns.count);
  part.is_w8a8 = is_w8a8;
  return LoadedMatrix(std::move(whole), part);
}

StatusOr<LoadedMatrix> BlocksPart(const Weights& weights, StoredTensor tensor,
                                  const BlockFormat& format, const StoredMatrix& stored) {
  const Slice rows = stored.rows_to_load(), columns = stored.columns_to_load();
  if (stored.is_transposed || stored.stack_size > 0 ||
      tensor.shape() != std::vector<int64_t>{stored.rows, stored.columns}) {
    return InvalidArgumentError(weights.PlaceOf(stored.name + ".weight") + " has shape " +
                                ShapeText(tensor.shape()) + ", the config needs [" +
                                std::to_string(stored.rows) + ", " +
                                std::to_string(stored.columns) + "]");
  }
  void* const bytes = const_cast<std::byte*>(tensor.bytes().data());  // a view that is only read
  const MatrixSource whole(
      Tensor(bytes, DType::kI8, {stored.rows, stored.columns / format.size * format.num_bytes}),
      format);
  MatrixSource part = whole.Rows(rows.begin, rows.count).Columns(columns.begin, columns.count);
  part.is_mapped = tensor.is_mapped();
  return LoadedMatrix(std::move(tensor), part);
}

}  // namespace

StatusOr<LoadedMatrix> LoadMatrix(Weights& weights, const CheckpointQuantization& quantization,
                                  const StoredMatrix& stored) {
  const Slice rows = stored.rows_to_load(), columns = stored.columns_to_load();
  if (quantization.method == QuantizationMethod::kGguf && weights.Has(stored.name + ".weight")) {
    ASSIGN_OR_RETURN(StoredTensor tensor, weights.GetStored(stored.name + ".weight"));
    if (const BlockFormat* const format = FindBlockFormat(tensor.dtype())) {
      return BlocksPart(weights, std::move(tensor), *format, stored);
    }
  }
  const ModuleTensors tensors(&weights, stored.name);
  if (quantization.method == QuantizationMethod::kMxfp4 && stored.stack_size > 0 &&
      tensors.Has("_blocks")) {
    ASSIGN_OR_RETURN(DecodedMatrix expert,
                     DecodeMxfp4OfStack(tensors, {stored.rows, stored.columns}, stored.stack_idx,
                                        stored.stack_size, rows, stored.row_step));
    const MatrixSource source = expert.source().Columns(columns.begin, columns.count);
    return LoadedMatrix(std::move(expert), source);
  }
  if (const DecodeMatrix decode = FindLayout(tensors, quantization)) {
    if (stored.is_transposed || stored.stack_size > 0 || stored.row_step > 1) {
      return UnimplementedError(stored.name + " is quantized: only matrices [outputs, inputs] of " +
                                "their own are supported");
    }
    ASSIGN_OR_RETURN(DecodedMatrix whole,
                     decode(tensors, {stored.rows, stored.columns}, quantization));
    // bitsandbytes' activations are not int8 where they are large.
    const bool is_w8a8 = quantization.method != QuantizationMethod::kBitsandbytes &&
                         quantization.has_quantized_activations;
    return DecodedPart(std::move(whole), stored, is_w8a8);
  }
  ASSIGN_OR_RETURN(WeightTensor tensor, GetTensor(weights, stored));
  const Tensor& whole = tensor.view();
  if (stored.is_transposed) {
    WeightTensor turned =
        Transposed(whole.Rows(columns.begin, columns.count)
                       .Columns(rows.begin, (rows.count - 1) * stored.row_step + 1));
    const Tensor view = StepRows(turned.view(), {0, rows.count}, stored.row_step);
    return LoadedMatrix(std::move(turned), view);
  }
  MatrixSource part(StepRows(whole, rows, stored.row_step).Columns(columns.begin, columns.count));
  part.is_mapped = tensor.is_mapped();
  return LoadedMatrix(std::move(tensor), part);
}

}  // namespace tandem
