#pragma once

// Keys of config.json that some families of models have, each with one meaning for all of them.
// Thread: any; pure. Failure: InvalidArgument with the key, its value and what is allowed.

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"
#include "engine_core/weights/model_config.h"

namespace tandem {

// Biases and norms, multipliers, chunks, layers that do not rotate.
Status ReadFamilyKeys(const nlohmann::json& json, const ConfigRules& rules, ModelConfig* config);

// Of a model that takes more than text, the architecture of its text model, where that is built.
// Keys that its class has and the file lacks are put into `json`.
void TakeTextModel(nlohmann::json* json, ModelConfig* config);

}  // namespace tandem
