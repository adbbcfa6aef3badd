#pragma once

// The merged rows of an image in the order of their attention windows (Qwen2.5-VL): windows row by
// row, in each its cells row by row. Windows at the right and bottom edge may be smaller.
// Thread: pure.

#include <cstdint>
#include <vector>

namespace tandem {

struct WindowOrder {
  std::vector<int32_t> cells;  // [cells]: which cell of the image, row by row, stands there
  std::vector<int64_t> ends;   // where each window ends
};

// A grid of height * width cells, windows of side * side.
WindowOrder OrderByWindows(int64_t height, int64_t width, int64_t side);

}  // namespace tandem
