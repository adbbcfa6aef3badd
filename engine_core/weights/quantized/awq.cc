// AWQ, version gemm: qweight I32 [K, N / 8] and qzeros I32 [G, N / 8] hold 4-bit codes along the
// outputs, eight in a word in an order of their own; scales [G, N].

#include "engine_core/weights/quantized/layouts.h"

namespace tandem {
namespace {

// The nibble of a word that has output j of its eight.
constexpr int kNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t OutputAt(const uint32_t* words, int64_t n) {
  return words[n / 8] >> (4 * kNibble[n % 8]) & 15;
}

}  // namespace

StatusOr<DecodedMatrix> DecodeAwq(const ModuleTensors& tensors, MatrixShape shape,
                                  const CheckpointQuantization& /*quantization*/) {
  const int64_t rows = shape.rows, columns = shape.columns;
  const int64_t words_per_input = rows / 8;
  ASSIGN_OR_RETURN(const StoredTensor stored_zeros, tensors.Get(".qzeros", "I32"));
  const int64_t num_groups = stored_zeros.shape().empty() ? 0 : stored_zeros.shape()[0];
  if (num_groups < 1 || columns % num_groups != 0 || rows % 8 != 0) {
    return tensors.Error(".qzeros", "has " + std::to_string(num_groups) + " groups for " +
                                        std::to_string(columns) + " inputs and " +
                                        std::to_string(rows) + " outputs");
  }
  ASSIGN_OR_RETURN(const std::vector<uint32_t> words,
                   tensors.Words(".qweight", {columns, words_per_input}));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> zeros,
                   tensors.Words(".qzeros", {num_groups, words_per_input}));
  ASSIGN_OR_RETURN(const std::vector<float> scales, tensors.Floats(".scales", {num_groups, rows}));

  DecodedMatrix codes(DType::kI8, rows, columns);
  if (num_groups > 1) codes.group_size = columns / num_groups;
  for (int64_t k = 0; k < columns; ++k) {
    for (int64_t n = 0; n < rows; ++n) {
      codes.Row<int8_t>(n)[k] =
          static_cast<int8_t>(OutputAt(words.data() + k * words_per_input, n));
    }
  }
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t g = 0; g < num_groups; ++g) {
      codes.scales.push_back(scales[static_cast<size_t>(g * rows + n)]);
      codes.zeros.push_back(static_cast<float>(OutputAt(zeros.data() + g * words_per_input, n)));
    }
  }
  return codes;
}

}  // namespace tandem
