#include "engine_core/weights/quantized/code_words.h"

#include <cstring>

namespace tandem {

std::vector<uint32_t> WordsOf(const StoredTensor& tensor) {
  std::vector<uint32_t> words(static_cast<size_t>(tensor.num_elements()));
  std::memcpy(words.data(), tensor.bytes().data(), words.size() * sizeof(uint32_t));
  return words;
}

StatusOr<int> BitsOf(const ModuleTensors& tensors, std::string_view suffix,
                     const StoredTensor& words, MatrixShape matrix, std::span<const int> sizes,
                     std::vector<int64_t> (*words_shape)(MatrixShape matrix, int bits)) {
  std::string known;
  for (const int bits : sizes) {
    const std::vector<int64_t> shape = words_shape(matrix, bits);
    if (!shape.empty() && words.shape() == shape) return bits;
    known += (known.empty() ? "" : ", ") + std::to_string(bits);
  }
  return tensors.Error(suffix, "does not hold " + std::to_string(matrix.rows) + " x " +
                                   std::to_string(matrix.columns) + " codes of " + known + " bits");
}

}  // namespace tandem
