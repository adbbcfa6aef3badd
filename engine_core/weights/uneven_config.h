#pragma once

// The keys of Gemma 4's config.json for layers that differ in the shape of their attention, share
// keys and values, or take something from each token besides the hidden state.
// Thread: any; pure. Failure: InvalidArgument or Unimplemented with the key.

#include <nlohmann/json_fwd.hpp>

#include "engine_core/weights/model_config.h"

namespace tandem {

// Sets config->uneven. Comes after shape, window and experts; drops the experts of a model whose
// enable_moe_block is off.
Status ReadUneven(const nlohmann::json& json, ModelConfig* config);

}  // namespace tandem
