#pragma once

// Codes of 2, 3, 4 or 8 bits in 32-bit words, the lowest first; those of 3 bits lie across the ends
// of words. Pure; any thread.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "engine_core/weights/quantized/layouts.h"

namespace tandem {

// The words of an I32 tensor.
std::vector<uint32_t> WordsOf(const StoredTensor& tensor);

inline int64_t NumWords(int64_t num_codes, int bits) { return (num_codes * bits + 31) / 32; }

// Code i of a sequence whose words are `stride` words apart.
inline uint32_t CodeAt(const uint32_t* words, int64_t i, int bits, int64_t stride = 1) {
  const int64_t begin = i * bits, shift = begin % 32;
  const uint32_t* const word = words + begin / 32 * stride;
  uint64_t code = *word;
  if (shift + bits > 32) code |= uint64_t{word[stride]} << 32;
  return static_cast<uint32_t>(code >> shift) & ((1u << bits) - 1);
}

// How a code or a zero stands in a MatrixSource: 8 bits less 128, so that they fit into int8.
inline int32_t SignedCode(uint32_t code, int bits) {
  return static_cast<int32_t>(code) - (bits == 8 ? 128 : 0);
}

// Which of `sizes` the codes of a matrix have, known by the shape of their words. words_shape: that
// shape for a number of bits; empty where codes of that size cannot be packed.
StatusOr<int> BitsOf(const ModuleTensors& tensors, std::string_view suffix,
                     const StoredTensor& words, MatrixShape matrix, std::span<const int> sizes,
                     std::vector<int64_t> (*words_shape)(MatrixShape matrix, int bits));

}  // namespace tandem
