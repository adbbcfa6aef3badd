#pragma once

// Opens a model's tensors in the format that its path shows, or that --load-format demands.
// Thread: main, before others start. Failure: as Weights; a path that is not of the format.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "engine_core/weights/model_config.h"
#include "engine_core/weights/safetensors.h"

namespace tandem {

// load_format: auto, safetensors, gguf or dummy (made of the seed). config: the model's.
StatusOr<std::unique_ptr<Weights>> OpenWeights(const std::string& model,
                                               std::string_view load_format,
                                               const ModelConfig& config, uint64_t seed = 0);

// For a model that is loaded whole: the tensors of its file that have had no reader, but for those
// that are known to say nothing more (a tied head, angles and masks that older files have, scales
// of activations).
std::vector<std::string> UnusedTensors(const Weights& weights, const ModelConfig& config);

}  // namespace tandem
