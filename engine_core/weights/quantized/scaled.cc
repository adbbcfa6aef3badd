// A number of 8 bits for each weight: weight I8 or F8_E4M3 [N, K], and scales for the tensor, for
// each row, or for blocks of rows and columns. weight_scale_inv multiplies, despite its name.

#include <cstring>

#include "engine_core/weights/quantized/layouts.h"

namespace tandem {
namespace {

constexpr std::string_view kNumbers = ".weight";

StatusOr<DecodedMatrix> ReadNumbers(const ModuleTensors& tensors, MatrixShape shape) {
  const bool is_int8 = tensors.DTypeOf(kNumbers) == "I8";
  ASSIGN_OR_RETURN(const StoredTensor stored,
                   tensors.Get(kNumbers, is_int8 ? "I8" : "F8_E4M3", {shape.rows, shape.columns}));
  DecodedMatrix matrix(DType::kI8, shape.rows, shape.columns);
  matrix.code_kind = is_int8 ? CodeKind::kInteger : CodeKind::kFloat8;
  std::memcpy(matrix.values.data(), stored.bytes().data(), matrix.values.size());
  return matrix;
}

}  // namespace

StatusOr<DecodedMatrix> DecodeScaled(const ModuleTensors& tensors, MatrixShape shape,
                                     const CheckpointQuantization& quantization) {
  const int64_t rows = shape.rows;
  ASSIGN_OR_RETURN(DecodedMatrix matrix, ReadNumbers(tensors, shape));
  const std::string_view suffix =
      tensors.Has(".weight_scale_inv") ? ".weight_scale_inv" : ".weight_scale";
  ASSIGN_OR_RETURN(const StoredTensor stored, tensors.Get(suffix));
  const std::vector<int64_t>& found = stored.shape();
  if (stored.num_elements() == 1) {
    ASSIGN_OR_RETURN(const float scale, tensors.Scalar(suffix));
    matrix.scales.assign(static_cast<size_t>(rows), scale);
    return matrix;
  }
  if (found == std::vector<int64_t>{rows}) {
    ASSIGN_OR_RETURN(matrix.scales, tensors.Floats(suffix, {rows}));
    return matrix;
  }
  if (found == std::vector<int64_t>{rows, 1} && suffix == ".weight_scale") {
    ASSIGN_OR_RETURN(matrix.scales, tensors.Floats(suffix, {rows, 1}));
    return matrix;
  }
  matrix.group_size = quantization.block_columns;
  const int64_t num_blocks = matrix.num_groups();
  const int64_t num_block_rows = (rows + quantization.block_rows - 1) / quantization.block_rows;
  ASSIGN_OR_RETURN(const std::vector<float> blocks,
                   tensors.Floats(suffix, {num_block_rows, num_blocks}));
  for (int64_t n = 0; n < rows; ++n) {
    const float* const block_row = blocks.data() + n / quantization.block_rows * num_blocks;
    matrix.scales.insert(matrix.scales.end(), block_row, block_row + num_blocks);
  }
  return matrix;
}

}  // namespace tandem
