#pragma once

// The shape of a model out of a GGUF file's keys: they are spelled as config.json has them and read
// by the same rules. Thread: any; pure. Failure: the Status names the file and the key.

#include "common/status.h"
#include "engine_core/weights/model_config.h"
#include "gguf/gguf_file.h"

namespace tandem {

StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file, FindConfigRules find_rules);

}  // namespace tandem
