// compressed-tensors' pack-quantized: weight_packed I32 [N, ceil(K bits / 32)] holds integers of 2,
// 4 or 8 bits plus half their range, weight_scale [N, G], weight_zero_point I32 [ceil(N bits / 32),
// G] along the outputs where they are asymmetric, weight_shape the true [N, K].

#include <cstring>

#include "engine_core/weights/quantized/code_words.h"
#include "engine_core/weights/quantized/layouts.h"

namespace tandem {
namespace {

constexpr std::string_view kCodes = ".weight_packed", kScales = ".weight_scale",
                           kZeros = ".weight_zero_point", kShape = ".weight_shape";
constexpr int kSizes[] = {2, 4, 8};

std::vector<int64_t> WordsShape(MatrixShape matrix, int bits) {
  return {matrix.rows, NumWords(matrix.columns, bits)};
}

Status CheckShape(const ModuleTensors& tensors, MatrixShape shape) {
  if (!tensors.Has(kShape)) return OkStatus();
  ASSIGN_OR_RETURN(const StoredTensor stored, tensors.Get(kShape, "I64", {2}));
  int64_t sizes[2];
  std::memcpy(sizes, stored.bytes().data(), sizeof sizes);
  if (sizes[0] == shape.rows && sizes[1] == shape.columns) return OkStatus();
  return tensors.Error(kShape, "is [" + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]) +
                                   "], the config needs [" + std::to_string(shape.rows) + ", " +
                                   std::to_string(shape.columns) + "]");
}

// The group of each input by the activations' order. It is in no golden and in no file that the
// format's own tool writes today.
Status RefuseGroupIndex(const ModuleTensors& tensors) {
  if (!tensors.Has(".weight_g_idx")) return OkStatus();
  return UnimplementedError(tensors.PlaceOf(".weight_g_idx") +
                            ": actorder group is not supported; weight is");
}

}  // namespace

StatusOr<DecodedMatrix> DecodePackedIntegers(const ModuleTensors& tensors, MatrixShape shape,
                                             const CheckpointQuantization& quantization) {
  const int64_t rows = shape.rows, columns = shape.columns;
  RETURN_IF_ERROR(CheckShape(tensors, shape));
  RETURN_IF_ERROR(RefuseGroupIndex(tensors));
  ASSIGN_OR_RETURN(const StoredTensor stored, tensors.Get(kCodes, "I32"));
  ASSIGN_OR_RETURN(const int bits, BitsOf(tensors, kCodes, stored, shape, kSizes, WordsShape));
  const std::vector<uint32_t> words = WordsOf(stored);
  ASSIGN_OR_RETURN(const StoredTensor stored_scales, tensors.Get(kScales));
  const int64_t num_groups = stored_scales.shape().size() == 2 ? stored_scales.shape()[1] : 0;
  if (num_groups < 1 || columns % num_groups != 0) {
    return tensors.Error(kScales, "has " + std::to_string(num_groups) + " groups for " +
                                      std::to_string(columns) + " inputs");
  }

  DecodedMatrix codes(DType::kI8, rows, columns);
  if (num_groups > 1) codes.group_size = columns / num_groups;
  ASSIGN_OR_RETURN(codes.scales, tensors.Floats(kScales, {rows, num_groups}));
  const bool has_zeros = tensors.Has(kZeros);
  if (!has_zeros && quantization.has_zeros) {
    return tensors.Error(kZeros, "is missing: the config says that weights are not symmetric");
  }
  // Symmetric ones become the signed integers that they are and need no zeros.
  const int32_t half = has_zeros ? (bits == 8 ? 128 : 0) : 1 << (bits - 1);
  const int64_t words_per_row = NumWords(columns, bits);
  for (int64_t n = 0; n < rows; ++n) {
    int8_t* const row = codes.Row<int8_t>(n);
    for (int64_t k = 0; k < columns; ++k) {
      const uint32_t code = CodeAt(words.data() + n * words_per_row, k, bits);
      row[k] = static_cast<int8_t>(static_cast<int32_t>(code) - half);
    }
  }
  if (!has_zeros) return codes;
  ASSIGN_OR_RETURN(const std::vector<uint32_t> zeros,
                   tensors.Words(kZeros, {NumWords(rows, bits), num_groups}));
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t g = 0; g < num_groups; ++g) {
      const uint32_t zero = CodeAt(zeros.data() + g, n, bits, num_groups);
      codes.zeros.push_back(static_cast<float>(SignedCode(zero, bits)));
    }
  }
  return codes;
}

}  // namespace tandem
