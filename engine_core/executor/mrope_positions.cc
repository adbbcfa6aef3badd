#include "engine_core/executor/mrope_positions.h"

#include <algorithm>

#include "common/check.h"

namespace tandem {

void FillMropePositions(const RequestImages* images, int32_t merge_size, int32_t begin,
                        const MropeRows& rows) {
  const int32_t end = begin + static_cast<int32_t>(rows.time.size());
  int32_t place = begin;
  int32_t shift = 0;  // from a place in a text to its position
  const auto set = [&](int32_t time, int32_t height, int32_t width) {
    const auto i = static_cast<size_t>(place++ - begin);
    rows.time[i] = time;
    rows.height[i] = height;
    rows.width[i] = width;
  };
  const auto fill_text = [&](int32_t text_end) {
    while (place < std::min(text_end, end)) set(place + shift, place + shift, place + shift);
  };
  if (images != nullptr) {
    for (const auto& image : *images) {
      CHECK_EQ(image->runs.size(), size_t{1}) << image->key;
      const ImageInput::Run run = image->runs.front();
      if (run.begin >= end) break;
      fill_text(run.begin);
      const int32_t first = run.begin + shift;
      const int32_t num_rows = image->grid_h / merge_size, num_columns = image->grid_w / merge_size;
      while (place < std::min(run.end(), end)) {
        const int32_t cell = place - run.begin;
        set(first, first + cell / num_columns, first + cell % num_columns);
      }
      shift = first + std::max(num_rows, num_columns) - run.end();
    }
  }
  fill_text(end);
}

}  // namespace tandem
