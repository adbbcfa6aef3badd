#pragma once

// Rows of numbers that stand for tokens of a prompt, in place of the embeddings of token ids. A
// value, shared by the request, its block hashes and the worker; nobody changes it.
// Shape: [rows, num_columns], row-major, as the client sent them. Positions are the prompt's.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct PromptEmbeddings {
  enum class Type : uint8_t { kFloat32, kFloat16, kBfloat16 };

  // Neighbouring positions that are rows.
  struct Run {
    int32_t begin = 0;
    int32_t num_rows = 0;
    int32_t end() const { return begin + num_rows; }
  };

  Type type = Type::kFloat32;
  int32_t num_columns = 0;
  std::vector<Run>
      runs;  // by position, with tokens between them; data has their rows in this order
  std::string data;

  size_t row_bytes() const {
    return static_cast<size_t>(num_columns) * (type == Type::kFloat32 ? 4 : 2);
  }
  // Calls use(Run, rows) for each part of a run in [begin, end).
  template <class Use>
  void ForEachRun(int32_t begin, int32_t end, Use use) const {
    size_t first_row = 0;  // of the run
    for (const Run& run : runs) {
      const int32_t from = std::max(begin, run.begin);
      const int32_t to = std::min(end, run.end());
      if (from < to) {
        const size_t row = first_row + static_cast<size_t>(from - run.begin);
        use(Run{from, to - from},
            std::string_view(data).substr(row * row_bytes(),
                                          static_cast<size_t>(to - from) * row_bytes()));
      }
      first_row += static_cast<size_t>(run.num_rows);
    }
  }
};

}  // namespace tandem
