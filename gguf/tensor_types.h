#pragma once

// How GGUF files store the numbers of a tensor: plain, or in blocks of a row's neighbours. All
// types of ggml are listed, so that a message can name one that nothing here can read.
// Pure; any thread. Source: ggml's table of types (GGML_TYPE_*).

#include <cstdint>
#include <string_view>

namespace tandem {

struct GgufTensorType {
  uint32_t id;
  std::string_view name;  // "Q4_K"
  int64_t block_size;     // numbers of a block
  int64_t block_bytes;
};

// Null for a number that is no type.
const GgufTensorType* FindGgufTensorType(uint32_t id);

}  // namespace tandem
