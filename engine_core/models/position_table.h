#pragma once

// Learned positions of a square of patches, for an image of another grid: read at points spread
// evenly over the square, its corners included, and interpolated between the four nearest.
// Thread: pure.

#include <cstdint>
#include <span>
#include <vector>

#include "engine_core/models/qwen_tower.h"

namespace tandem {

// A point of one direction: between two of the table's rows, and how far from the first.
struct TablePoint {
  int64_t before = 0, after = 0;
  float part = 0;
};
// Of each of `size` patches, in a table of `side`.
std::vector<TablePoint> TablePoints(int64_t size, int64_t side);

// Of each place the four rows of a table [side * side, .] and what each counts: weighted rows, as
// Ops::AddWeightedRows takes them.  [places, 4]
struct PositionMix {
  std::vector<int32_t> rows;
  std::vector<float> weights;
};
PositionMix MixPositions(int64_t side, std::span<const PatchPlace> places, int64_t grid_h,
                         int64_t grid_w);

}  // namespace tandem
