#pragma once

// Small vision towers of made-up weights, with heads as large as published models have them, and
// images for them. Thread: the test's. What does not load ends the test program.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/models/vision_tower.h"
#include "kernels/backend.h"

namespace tandem {

// A config.json.
nlohmann::json MadeTowerConfig(const std::string& architecture);

struct MadeImage {
  std::vector<float> numbers;
  ImagePatches patches;
};

// Of rows times columns patches; SigLIP's have one size.
MadeImage DrawImage(const ModelConfig& config, int32_t rows, int32_t columns, uint64_t seed);

inline constexpr ModelLimits kMadeTowerLimits = {
    .max_tokens = 64, .max_logits_rows = 64, .max_positions = 64};

StatusOr<std::unique_ptr<VisionTower>> LoadMadeTower(const ModelConfig& config, Backend* backend,
                                                     RankShare share = {});

// All numbers of the image's rows.
std::vector<float> RowsOf(VisionTower* tower, Backend* backend, const MadeImage& image);

}  // namespace tandem
