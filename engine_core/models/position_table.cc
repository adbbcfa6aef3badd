#include "engine_core/models/position_table.h"

#include <algorithm>
#include <cmath>

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

std::vector<float> InterpolatedPositions(const Tensor& table, std::span<const PatchPlace> places,
                                         int64_t grid_h, int64_t grid_w) {
  const auto side = std::llround(std::sqrt(static_cast<double>(table.rows())));
  const int64_t hidden = table.shape[1];
  const std::vector<TablePoint> rows = TablePoints(grid_h, side);
  const std::vector<TablePoint> columns = TablePoints(grid_w, side);
  std::vector<float> positions;
  positions.reserve(places.size() * static_cast<size_t>(hidden));
  for (const PatchPlace& place : places) {
    const TablePoint& y = rows[static_cast<size_t>(place.row)];
    const TablePoint& x = columns[static_cast<size_t>(place.column)];
    const float* top_left = table.Row<float>(y.before * side + x.before);
    const float* top_right = table.Row<float>(y.before * side + x.after);
    const float* bottom_left = table.Row<float>(y.after * side + x.before);
    const float* bottom_right = table.Row<float>(y.after * side + x.after);
    for (int64_t i = 0; i < hidden; ++i) {
      positions.push_back(
          (1 - y.part) * (1 - x.part) * top_left[i] + (1 - y.part) * x.part * top_right[i] +
          y.part * (1 - x.part) * bottom_left[i] + y.part * x.part * bottom_right[i]);
    }
  }
  return positions;
}

}  // namespace tandem
