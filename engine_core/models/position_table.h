#pragma once

// Learned positions of a square of patches, for an image of another grid: read at points spread
// evenly over the square, its corners included, and interpolated between the four nearest.
// Thread: pure.

#include <cstdint>
#include <span>
#include <vector>

#include "engine_core/models/qwen_tower.h"
#include "kernels/tensor.h"

namespace tandem {

// A point of one direction: between two of the table's rows, and how far from the first.
struct TablePoint {
  int64_t before = 0, after = 0;
  float part = 0;
};
// Of each of `size` patches, in a table of `side`.
std::vector<TablePoint> TablePoints(int64_t size, int64_t side);

// table: [side * side, H] f32, host. Returns [places, H].
std::vector<float> InterpolatedPositions(const Tensor& table, std::span<const PatchPlace> places,
                                         int64_t grid_h, int64_t grid_w);

}  // namespace tandem
