#pragma once

// Ways to store a run of a row's weights as one block of bytes, with the scales among them: GGML's
// block formats. A format is a row here (block_format.cc) and a function in kernels/blocks.
// Pure; any thread. Units: weights and bytes of one block. Source: ggml's quantization formats;
// numbers equal those of the gguf package's dequantize to the bit.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

struct BlockFormat {
  std::string_view name;  // as GGUF files name it: "Q4_K"
  int64_t size;           // weights, at most kMaxBlockSize
  int64_t num_bytes;
  // weights[0 .. size) = the numbers that the block stands for.
  void (*read)(const uint8_t* block, float* weights);
};

inline constexpr int64_t kMaxBlockSize = 256;

// Null for a name that is none.
const BlockFormat* FindBlockFormat(std::string_view name);
// "Q4_0, Q4_1, ..."
std::string BlockFormatNames();

}  // namespace tandem
