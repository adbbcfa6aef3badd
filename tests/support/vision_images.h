#pragma once

// The models of the set `vision`, which lies in TANDEM_GOLDENS alone, and their images as the
// processors make them of the resized ones. Thread: the test's. Bad files end the test program.

#include <cstdint>
#include <string>
#include <vector>

#include "engine_core/models/vision_tower.h"
#include "tests/support/engine/golden_logits.h"

namespace tandem {

// Sorted by name; none without TANDEM_GOLDENS, with a warning.
std::vector<std::string> VisionFolders();

struct Pixels {
  std::vector<float> numbers;
  std::vector<int64_t> shape;
  ImagePatches image;  // of them
};

// tensors: the folder's tensors.safetensors.
Pixels MakePixels(const std::string& folder, const GoldenLogits& tensors, const std::string& file);

}  // namespace tandem
