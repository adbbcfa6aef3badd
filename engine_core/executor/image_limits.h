#pragma once

// What the images of requests must be for a model. Values; thread: any one.

#include <cstdint>
#include <optional>

#include "common/ids.h"
#include "engine_core/weights/vision_config.h"

namespace tandem {

struct ImageLimits {
  TokenId token_id = 0;  // stands in the prompt for each row
  // Numbers of a patch. Images come as patches with the grid that they make; a square of merge_size
  // of them each way becomes a row. 0: they come as squares of three colours, each of which becomes
  // rows_per_image rows.
  int64_t patch_numbers = 0;
  int32_t merge_size = 1;
  int64_t image_size = 0;  // pixels of a square's side
  int32_t rows_per_image = 0;
  // Attention inside an image goes both ways, so a step computes all of it.
  bool are_whole = false;
  // Tokens of an image have positions of their own, which turn queries and keys.
  bool have_positions = false;
  // What a tower's work is cut into, so that other requests can run in between: of patches, by what
  // each takes by itself and for each other one, in slices; of a square.
  double slices_per_patch = 0, slices_per_pair = 0;
  int32_t slices_per_image = 1;
  // In a replay: they come without their pixels, which are not recorded.
  bool lack_pixels = false;
};

// Of an image of num_patches; at least 1.
int32_t NumSlices(const ImageLimits& limits, int64_t num_patches);

// nullopt: the model has no tower.
std::optional<ImageLimits> ImageLimitsOf(const VisionConfig& vision);

}  // namespace tandem
