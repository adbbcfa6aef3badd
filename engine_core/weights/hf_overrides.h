#pragma once

// config.json with keys that the operator replaces (--hf-overrides). Thread: any; values. Failure:
// as model_config.h.

#include <string>
#include <string_view>

#include "engine_core/weights/model_config.h"

namespace tandem {

// hf_overrides: a JSON object whose keys replace those of config.json, in objects below them too;
// may be empty.
StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir, FindConfigRules find_rules,
                                      std::string_view hf_overrides);

}  // namespace tandem
