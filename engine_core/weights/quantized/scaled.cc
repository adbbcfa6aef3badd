// A number of 8 bits for each weight: weight I8 or F8_E4M3 [N, K], and scales for the tensor, for
// each row, for groups of a row's columns, or for blocks of rows and columns; in MXFP8 they are
// powers of two. weight_scale_inv multiplies, despite its name. Asymmetric integers have a zero I8
// for each scale.

#include <algorithm>
#include <cstring>

#include "common/shape_text.h"
#include "engine_core/weights/quantized/layouts.h"

namespace tandem {
namespace {

constexpr std::string_view kNumbers = ".weight", kZeros = ".weight_zero_point";

StatusOr<DecodedMatrix> ReadNumbers(const ModuleTensors& tensors, MatrixShape shape) {
  const bool is_int8 = tensors.DTypeOf(kNumbers) == "I8";
  ASSIGN_OR_RETURN(const StoredTensor stored,
                   tensors.Get(kNumbers, is_int8 ? "I8" : "F8_E4M3", {shape.rows, shape.columns}));
  DecodedMatrix matrix(DType::kI8, shape.rows, shape.columns);
  matrix.code_kind = is_int8 ? CodeKind::kInteger : CodeKind::kFloat8;
  std::memcpy(matrix.values.data(), stored.bytes().data(), matrix.values.size());
  return matrix;
}

// Which weights share a scale.
struct Sharing {
  int64_t rows = 1;
  int64_t columns = 0;  // 0: all
  int64_t num_groups = 1;
};

// As the shape of the scales says.
StatusOr<Sharing> SharingOf(const ModuleTensors& tensors, std::string_view suffix,
                            std::vector<int64_t> scales, MatrixShape shape,
                            const CheckpointQuantization& quantization) {
  const std::vector<int64_t> stored = scales;
  // ModelOpt's blocks, [R, 1, C, 1].
  if (scales.size() == 4 && scales[1] == 1 && scales[3] == 1) scales = {scales[0], scales[2]};
  if (std::all_of(scales.begin(), scales.end(), [](int64_t size) { return size == 1; })) {
    return Sharing{.rows = shape.rows};
  }
  if (scales == std::vector<int64_t>{shape.rows}) return Sharing();
  const int64_t block_rows = quantization.block_rows, block_columns = quantization.block_columns;
  const int64_t num_blocks = (shape.columns + block_columns - 1) / block_columns;
  const std::vector<int64_t> blocks = {(shape.rows + block_rows - 1) / block_rows, num_blocks};
  if (scales == blocks) {
    return Sharing{.rows = block_rows, .columns = block_columns, .num_groups = num_blocks};
  }
  if (scales.size() == 2 && scales[0] == shape.rows && scales[1] > 0 &&
      shape.columns % scales[1] == 0 && suffix == ".weight_scale") {
    return Sharing{.rows = 1, .columns = shape.columns / scales[1], .num_groups = scales[1]};
  }
  return tensors.Error(suffix, "has shape " + ShapeText(stored) +
                                   ", must be one number, one or more for each of the " +
                                   std::to_string(shape.rows) + " rows, or " + ShapeText(blocks) +
                                   " for blocks of " + std::to_string(block_rows) + " x " +
                                   std::to_string(block_columns));
}

StatusOr<std::vector<float>> ReadScales(const ModuleTensors& tensors, std::string_view suffix,
                                        const StoredTensor& stored) {
  if (stored.dtype() != "U8" && stored.dtype() != "F8_E8M0") return tensors.Floats(suffix);
  std::vector<float> scales;
  for (const std::byte exponent : stored.bytes()) {
    ASSIGN_OR_RETURN(scales.emplace_back(), tensors.PowerOf(suffix, exponent));
  }
  return scales;
}

// [rows, groups] of what the file has once for all rows that share it.
std::vector<float> OfEachRow(const std::vector<float>& shared, int64_t rows,
                             const Sharing& sharing) {
  std::vector<float> numbers;
  for (int64_t n = 0; n < rows; ++n) {
    const auto first = shared.begin() + n / sharing.rows * sharing.num_groups;
    numbers.insert(numbers.end(), first, first + sharing.num_groups);
  }
  return numbers;
}

// Empty where all are 0: some writers store them for symmetric weights, too.
StatusOr<std::vector<float>> ReadZeros(const ModuleTensors& tensors, const StoredTensor& scales,
                                       bool are_needed) {
  if (!tensors.Has(kZeros)) {
    if (!are_needed) return std::vector<float>();
    return tensors.Error(kZeros, "is missing: the config says that weights are not symmetric");
  }
  ASSIGN_OR_RETURN(const StoredTensor stored, tensors.Get(kZeros, "I8"));
  if (stored.num_elements() != scales.num_elements()) {
    return tensors.Error(kZeros, "has shape " + ShapeText(stored.shape()) + ", its scales have " +
                                     ShapeText(scales.shape()));
  }
  std::vector<float> zeros;
  for (const std::byte zero : stored.bytes()) zeros.push_back(static_cast<int8_t>(zero));
  if (std::all_of(zeros.begin(), zeros.end(), [](float zero) { return zero == 0; })) zeros.clear();
  return zeros;
}

}  // namespace

StatusOr<DecodedMatrix> DecodeScaled(const ModuleTensors& tensors, MatrixShape shape,
                                     const CheckpointQuantization& quantization) {
  ASSIGN_OR_RETURN(DecodedMatrix matrix, ReadNumbers(tensors, shape));
  const std::string_view suffix =
      tensors.Has(".weight_scale_inv") ? ".weight_scale_inv" : ".weight_scale";
  ASSIGN_OR_RETURN(const StoredTensor stored, tensors.Get(suffix));
  ASSIGN_OR_RETURN(const Sharing sharing,
                   SharingOf(tensors, suffix, stored.shape(), shape, quantization));
  matrix.group_size = sharing.columns;
  ASSIGN_OR_RETURN(const std::vector<float> scales, ReadScales(tensors, suffix, stored));
  matrix.scales = OfEachRow(scales, shape.rows, sharing);
  if (matrix.code_kind != CodeKind::kInteger) return matrix;
  ASSIGN_OR_RETURN(const std::vector<float> zeros,
                   ReadZeros(tensors, stored, quantization.has_zeros));
  if (!zeros.empty()) matrix.zeros = OfEachRow(zeros, shape.rows, sharing);
  return matrix;
}

}  // namespace tandem
