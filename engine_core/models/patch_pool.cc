#include "engine_core/models/patch_pool.h"

#include <cmath>

namespace tandem {
namespace {

int64_t RootOf(int64_t square) { return std::llround(std::sqrt(static_cast<double>(square))); }

}  // namespace

std::vector<float> CutPatches(const Tensor& pixels, int64_t patch_size) {
  const int64_t height = pixels.shape[2], width = pixels.shape[3];
  const auto* from = pixels.Data<float>();
  std::vector<float> patches;
  patches.reserve(static_cast<size_t>(pixels.NumElements()));
  for (int64_t top = 0; top < height; top += patch_size) {
    for (int64_t left = 0; left < width; left += patch_size) {
      for (int64_t row = 0; row < 3 * patch_size; ++row) {
        const int64_t colour = row / patch_size, y = top + row % patch_size;
        const float* begin = from + (colour * height + y) * width + left;
        patches.insert(patches.end(), begin, begin + patch_size);
      }
    }
  }
  return patches;
}

std::vector<int32_t> PatchesOfPooled(int64_t num_patches, int64_t num_pooled) {
  const int64_t side = RootOf(num_patches), pooled_side = RootOf(num_pooled);
  const int64_t window = side / pooled_side;
  std::vector<int32_t> patches;
  for (int64_t i = 0; i < num_pooled; ++i) {
    const int64_t top = i / pooled_side * window, left = i % pooled_side * window;
    for (int64_t row = top; row < top + window; ++row) {
      for (int64_t column = left; column < left + window; ++column) {
        patches.push_back(static_cast<int32_t>(row * side + column));
      }
    }
  }
  return patches;
}

}  // namespace tandem
