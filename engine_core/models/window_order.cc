#include "engine_core/models/window_order.h"

#include <algorithm>

namespace tandem {

WindowOrder OrderByWindows(int64_t height, int64_t width, int64_t side) {
  WindowOrder order;
  for (int64_t top = 0; top < height; top += side) {
    for (int64_t left = 0; left < width; left += side) {
      for (int64_t row = top; row < std::min(top + side, height); ++row) {
        for (int64_t column = left; column < std::min(left + side, width); ++column) {
          order.cells.push_back(static_cast<int32_t>(row * width + column));
        }
      }
      order.ends.push_back(static_cast<int64_t>(order.cells.size()));
    }
  }
  return order;
}

}  // namespace tandem
