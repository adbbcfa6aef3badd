#include "engine_core/models/position_table.h"

#include <algorithm>
#include <utility>

namespace tandem {

std::vector<TablePoint> TablePoints(int64_t size, int64_t side) {
  std::vector<TablePoint> points;
  const auto last = static_cast<float>(side - 1);
  const float step = size > 1 ? last / static_cast<float>(size - 1) : 0;
  for (int64_t i = 0; i < size; ++i) {
    // From the nearer end, as the code that trained the models computes it.
    const float at = i < size / 2 || size == 1 ? step * static_cast<float>(i)
                                               : last - step * static_cast<float>(size - 1 - i);
    const auto before = static_cast<int64_t>(at);
    points.push_back({before, std::min(before + 1, side - 1), at - static_cast<float>(before)});
  }
  return points;
}

PositionMix MixPositions(int64_t side, std::span<const PatchPlace> places, int64_t grid_h,
                         int64_t grid_w) {
  const std::vector<TablePoint> rows = TablePoints(grid_h, side);
  const std::vector<TablePoint> columns = TablePoints(grid_w, side);
  PositionMix mix;
  for (const PatchPlace& place : places) {
    const TablePoint& y = rows[static_cast<size_t>(place.row)];
    const TablePoint& x = columns[static_cast<size_t>(place.column)];
    for (const auto& [row, row_part] : {std::pair(y.before, 1 - y.part), {y.after, y.part}}) {
      for (const auto& [column, part] : {std::pair(x.before, 1 - x.part), {x.after, x.part}}) {
        mix.rows.push_back(static_cast<int32_t>(row * side + column));
        mix.weights.push_back(row_part * part);
      }
    }
  }
  return mix;
}

}  // namespace tandem
