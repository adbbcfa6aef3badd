#pragma once

// Reads what torch.save writes for one tensor, which is how clients send embeddings: a ZIP archive
// whose data.pkl (a pickle) describes the tensor and whose data/0 has its numbers.
// The bytes are a stranger's. Of pickle only the instructions that such a description consists of
// are known, nothing named in it is called, and every size is checked before it is used; the
// largest allocation is the tensor itself.
// Pure; any thread. Failure: INVALID_ARGUMENT with what is wrong.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

struct TorchTensor {
  std::string dtype;  // "float32", "float16" or "bfloat16"
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  std::string data;  // row-major, little-endian
};

// A dense tensor [rows, columns], or [1, rows, columns], of floats.
StatusOr<TorchTensor> ReadTorchTensor(std::string_view file);

}  // namespace tandem
