#pragma once

// Rows of numbers that stand for the first tokens of a prompt, in place of the embeddings of token
// ids. A value, shared by the request, its block hashes and the worker; nobody changes it.
// Shape: [num_rows, num_columns], row-major, as the client sent it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

struct PromptEmbeddings {
  enum class Type : uint8_t { kFloat32, kFloat16, kBfloat16 };

  Type type = Type::kFloat32;
  int32_t num_rows = 0;
  int32_t num_columns = 0;
  std::string data;

  size_t row_bytes() const {
    return static_cast<size_t>(num_columns) * (type == Type::kFloat32 ? 4 : 2);
  }
  // Rows [begin, end), clamped to those there are; empty: none.
  std::string_view Rows(int32_t begin, int32_t end) const {
    if (end > num_rows) end = num_rows;
    if (begin >= end) return {};
    return std::string_view(data).substr(static_cast<size_t>(begin) * row_bytes(),
                                         static_cast<size_t>(end - begin) * row_bytes());
  }
};

}  // namespace tandem
