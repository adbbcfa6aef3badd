#pragma once

// The memory in which tandem-grammar's processes write token masks: a file that they map too, one
// row for each request of a step.
// Thread: engine loop; others read masks_file alone. Failure: memory, in Create.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

class MaskMemory {
 public:
  static StatusOr<MaskMemory> Create(int32_t num_rows, int32_t vocab_size);
  MaskMemory(MaskMemory&& other) noexcept;
  ~MaskMemory();

  int file() const { return file_.get(); }
  // Bit i % 32 of word i / 32 allows token i.
  std::span<int32_t> row(int32_t row_idx) const {
    return words_.subspan(static_cast<size_t>(row_idx) * num_row_words_, num_row_words_);
  }

 private:
  MaskMemory() = default;

  UniqueFd file_;
  std::span<int32_t> words_;
  size_t num_row_words_ = 0;
};

}  // namespace tandem
