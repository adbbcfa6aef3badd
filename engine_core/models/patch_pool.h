#pragma once

// An image of a fixed size as patches row by row (SigLIP), and which of them a pooled one is of.
// Thread: pure. Shapes: P patches of a square image, p pixels of a patch's side.

#include <cstdint>
#include <vector>

#include "kernels/tensor.h"

namespace tandem {

// pixels: [1, 3, h, w] f32, host. Returns [P, 3 p p], each patch by colour, y, x.
std::vector<float> CutPatches(const Tensor& pixels, int64_t patch_size);

// The patches of each square that becomes one row, row by row: [num_pooled, num_patches /
// num_pooled]. Both counts are squares, the one's root divides the other's.
std::vector<int32_t> PatchesOfPooled(int64_t num_patches, int64_t num_pooled);

}  // namespace tandem
