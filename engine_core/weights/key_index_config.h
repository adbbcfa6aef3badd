#pragma once

// The keys of config.json for attention over keys that each token chooses (DeepSeek-V3.2, GLM-5).
// Thread: any; pure. Failure: InvalidArgument with the key.

#include <nlohmann/json_fwd.hpp>

#include "engine_core/weights/model_config.h"

namespace tandem {

// Sets config->index, and config->head_dim to the size of a latent with its index key. Comes after
// the latent's keys.
Status ReadKeyIndex(const nlohmann::json& json, ModelConfig* config);

}  // namespace tandem
