#include "engine_core/weights/quantized/code_words.h"

#include <cstring>

namespace tandem {

std::vector<uint32_t> WordsOf(const StoredTensor& tensor) {
  std::vector<uint32_t> words(static_cast<size_t>(tensor.num_elements()));
  std::memcpy(words.data(), tensor.bytes().data(), words.size() * sizeof(uint32_t));
  return words;
}

StatusOr<int> BitsOf(const ModuleTensors& tensors, std::string_view suffix,
                     const StoredTensor& words, MatrixShape matrix,
                     std::vector<int64_t> (*words_shape)(MatrixShape matrix, int bits)) {
  for (const int bits : {2, 4, 8}) {
    const std::vector<int64_t> shape = words_shape(matrix, bits);
    if (!shape.empty() && words.shape() == shape) return bits;
  }
  return tensors.Error(suffix, "does not hold " + std::to_string(matrix.rows) + " x " +
                                   std::to_string(matrix.columns) + " codes of 2, 4 or 8 bits");
}

}  // namespace tandem
