#pragma once

// Opens a model's tensors in the format that its path shows, or that --load-format demands.
// Thread: main, before others start. Failure: as Weights; a path that is not of the format.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"
#include "engine_core/weights/model_config.h"
#include "engine_core/weights/safetensors.h"

namespace tandem {

// load_format: auto, safetensors, gguf or dummy (made of the seed). config: the model's.
StatusOr<std::unique_ptr<Weights>> OpenWeights(const std::string& model,
                                               std::string_view load_format,
                                               const ModelConfig& config, uint64_t seed = 0);

}  // namespace tandem
