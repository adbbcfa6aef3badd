#pragma once

// The recorded requests of the set `vision` as a frontend sends them and an engine takes them in.
// Thread: the test's. Bad files end the test program.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/ids.h"
#include "engine_core/executor/image_limits.h"
#include "engine_core/scheduler/request_images.h"
#include "proto_msgpack/schema.h"
#include "tests/support/engine/golden_logits.h"

namespace tandem {

struct VisionCase {
  std::string id;
  std::vector<TokenId> prompt;
  std::shared_ptr<const RequestImages> images;
  nlohmann::json golden;
};

// tensors: the folder's tensors.safetensors. is_inverted: with other images of the same sizes.
VisionCase ReadVisionCase(const std::string& folder, const GoldenLogits& tensors,
                          const ImageLimits& limits, const nlohmann::json& golden,
                          bool is_inverted = false);
// All six of a folder. slices_per_patch: 0: as many as the model's work is, which is one.
std::vector<VisionCase> ReadVisionCases(const std::string& folder, double slices_per_patch = 0);

// Logits of a row in the order of the vocabulary; the sampled token comes first, and again.
std::vector<float> LogitsByToken(const wire::LogprobsRows& row);

}  // namespace tandem
