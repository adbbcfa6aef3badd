#pragma once

// The memory in which tandem-grammar's processes write token masks: a file that they map too, a row
// for each slot of the batch and one for each draft of its request (grammar/mask_rows.h).
// Thread: engine loop; others read masks_file alone. Failure: memory, in Create.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/status.h"
#include "common/unique_fd.h"
#include "grammar/mask_rows.h"

namespace tandem {

class MaskMemory {
 public:
  static StatusOr<MaskMemory> Create(int32_t num_rows, int32_t vocab_size);
  MaskMemory(MaskMemory&& other) noexcept;
  ~MaskMemory();

  int file() const { return file_.get(); }
  const MaskRows& rows() const { return rows_; }

 private:
  MaskMemory() = default;

  UniqueFd file_;
  std::span<int32_t> words_;
  MaskRows rows_;
};

}  // namespace tandem
