#pragma once

// What the towers of Qwen's models share: patches whose order keeps those of a merged row together,
// rotation by row and column, and the merger, which makes one row of them.
// Thread, ownership: as vision_layers.h. Shapes: P patches, H hidden, m merge_size, D size of a
// head.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine_core/models/vision_layers.h"
#include "engine_core/models/vision_tower.h"

namespace tandem {

struct PatchPlace {
  int32_t row = 0, column = 0;
  friend bool operator==(const PatchPlace&, const PatchPlace&) = default;
};

// Where the patches of an image are, in their order: merged row by merged row, inside one row by
// row.  grid_h and grid_w are multiples of m.
std::vector<PatchPlace> PlacesOfPatches(int32_t grid_h, int32_t grid_w, int64_t merge_size);

// The angles of the places: the first D / 4 pairs turn by the row, the others by the column, each
// at 10000^(-i / (D / 4)).
PatchAngles AnglesOf(const std::vector<PatchPlace>& places, int64_t head_dim);

// "model.visual" or "visual", as the checkpoint has them.
std::string QwenTowerPrefix(const Weights& weights);

// grid and pixels fit each other and the model.
Status CheckQwenImage(const VisionConfig& config, const ImagePatches& image);

inline int64_t MergedRows(const VisionConfig& config, const ImagePatches& image) {
  return int64_t{image.grid_h} * image.grid_w / (config.merge_size * config.merge_size);
}

// down(gelu(up(norm(x)))), x: [P, H], of which m * m rows become one.
struct PatchMerger {
  NormLayer norm;
  bool norms_merged = false;  // the norm is of the m * m * H numbers, else of each H
  LinearLayer up, down;
};

// Both matrices have biases; the inner size is m * m * H.
StatusOr<PatchMerger> LoadPatchMerger(const LoadContext& context, const VisionConfig& config,
                                      const std::string& norm, const std::string& up,
                                      const std::string& down, bool norms_merged,
                                      bool has_rms_norm);
// x: [P, H] res, contiguous; out: [P / m^2, out_size] f32, in backend memory.
Status RunPatchMerger(Backend* backend, const PatchMerger& merger, const Tensor& x, float epsilon,
                      const Tensor& out);
// A stage that does that with the run's hidden states.  out: [P / m^2, out_size].  REQUIRES: the
// merger stays until the work is done.
void AddPatchMerger(Backend* backend, const PatchMerger& merger,
                    const std::shared_ptr<TowerRun>& run, float epsilon, const Tensor& out,
                    TowerWork* work);

}  // namespace tandem
