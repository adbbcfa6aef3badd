#include "engine_core/executor/image_limits.h"

namespace tandem {

std::optional<ImageLimits> ImageLimitsOf(const VisionConfig& vision) {
  ImageLimits limits;
  limits.token_id = vision.image_token_id;
  switch (vision.family) {
    case VisionFamily::kNone:
      return std::nullopt;
    case VisionFamily::kQwen25:
    case VisionFamily::kQwen3:
      limits.patch_numbers = vision.patch_numbers();
      limits.merge_size = static_cast<int32_t>(vision.merge_size);
      limits.have_positions = true;
      break;
    case VisionFamily::kSiglip:
      limits.image_size = vision.image_size;
      limits.rows_per_image = static_cast<int32_t>(vision.tokens_per_image);
      limits.are_whole = true;
      break;
  }
  return limits;
}

}  // namespace tandem
