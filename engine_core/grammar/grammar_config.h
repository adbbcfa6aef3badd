#pragma once

// --structured-outputs-config: a JSON object with vLLM's keys.
// Pure; any thread. Failure: INVALID_ARGUMENT that names the key, its value and what is allowed.

#include <string>

#include "common/status.h"
#include "engine_core/grammar/grammar_spec.h"

namespace tandem {

struct GrammarConfig {
  GrammarDefaults defaults;
};

// An empty text gives vLLM's defaults.
StatusOr<GrammarConfig> ParseGrammarConfig(const std::string& text);

}  // namespace tandem
