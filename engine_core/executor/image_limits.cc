#include "engine_core/executor/image_limits.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// Multiplications of a slice: 2 to 4 ms on two cores with AVX512-BF16. A recording is replayed with
// the same slices on another host.
constexpr double kSliceWork = 0x1p30;

// Of layers with windows, their size is of no account beside the products.
void SetSlices(const VisionConfig& vision, ImageLimits* limits) {
  const auto num_layers = static_cast<double>(vision.num_layers);
  const double num_full = vision.family == VisionFamily::kQwen25
                              ? static_cast<double>(vision.full_attention_layers.size())
                              : num_layers;
  const auto merged =
      static_cast<double>(vision.hidden_size * vision.merge_size * vision.merge_size);
  const double num_mergers = static_cast<double>(1 + vision.deepstack_layers.size());
  const double merger =
      (merged + static_cast<double>(vision.out_size)) * static_cast<double>(vision.hidden_size);
  const double patch = num_layers * vision.LayerWork(0) + num_mergers * merger +
                       static_cast<double>(vision.patch_numbers() * vision.hidden_size);
  limits->slices_per_patch = patch / kSliceWork;
  limits->slices_per_pair = num_full * (vision.LayerWork(1) - vision.LayerWork(0)) / kSliceWork;
}

}  // namespace

int32_t NumSlices(const ImageLimits& limits, int64_t num_patches) {
  const auto patches = static_cast<double>(num_patches);
  const double num_slices =
      std::ceil(patches * (limits.slices_per_patch + patches * limits.slices_per_pair));
  return static_cast<int32_t>(std::clamp<double>(num_slices, 1, 1 << 30));
}

std::optional<ImageLimits> ImageLimitsOf(const VisionConfig& vision) {
  ImageLimits limits;
  limits.token_id = vision.image_token_id;
  if (vision.family != VisionFamily::kNone) SetSlices(vision, &limits);
  switch (vision.family) {
    case VisionFamily::kNone:
      return std::nullopt;
    case VisionFamily::kQwen25:
    case VisionFamily::kQwen3:
      limits.patch_numbers = vision.patch_numbers();
      limits.merge_size = static_cast<int32_t>(vision.merge_size);
      limits.have_positions = true;
      break;
    case VisionFamily::kSiglip: {
      const int64_t side = vision.image_size / vision.patch_size;
      limits.image_size = vision.image_size;
      limits.rows_per_image = static_cast<int32_t>(vision.tokens_per_image);
      limits.slices_per_image = NumSlices(limits, side * side);
      limits.are_whole = true;
      break;
    }
  }
  return limits;
}

}  // namespace tandem
