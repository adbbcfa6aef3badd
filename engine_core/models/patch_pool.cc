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

std::vector<float> PoolPatches(const Tensor& x, int64_t num_pooled) {
  const int64_t hidden = x.shape[1], side = RootOf(x.rows()), pooled_side = RootOf(num_pooled);
  const int64_t window = side / pooled_side;
  std::vector<float> pooled(static_cast<size_t>(num_pooled * hidden), 0.0f);
  for (int64_t i = 0; i < x.rows(); ++i) {
    const int64_t to = i / side / window * pooled_side + i % side / window;
    const float* row = x.Row<float>(i);
    float* sum = pooled.data() + to * hidden;
    for (int64_t c = 0; c < hidden; ++c) sum[c] += row[c];
  }
  for (float& sum : pooled) sum /= static_cast<float>(window * window);
  return pooled;
}

}  // namespace tandem
