#pragma once

// An image of a fixed size as patches row by row (SigLIP), and squares of patches as their means.
// Thread: pure. Shapes: P patches of a square image, p pixels of a patch's side.

#include <cstdint>
#include <vector>

#include "kernels/tensor.h"

namespace tandem {

// pixels: [1, 3, h, w] f32, host. Returns [P, 3 p p], each patch by colour, y, x.
std::vector<float> CutPatches(const Tensor& pixels, int64_t patch_size);

// x: [P, H] f32, host. Returns [num_pooled, H]; both counts are squares, the one's root divides the
// other's.
std::vector<float> PoolPatches(const Tensor& x, int64_t num_pooled);

}  // namespace tandem
