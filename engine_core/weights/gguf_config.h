#pragma once

// The shape of a model out of a GGUF file's keys: they are spelled as config.json has them and read
// by the same rules. Thread: any; pure. Failure: the Status names the file and the key.

#include <string>

#include "common/status.h"
#include "engine_core/weights/model_config.h"
#include "gguf/gguf_file.h"

namespace tandem {

// The keys as the text of a config.json.
StatusOr<std::string> GgufConfigJson(const GgufFile& file);

StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file, FindConfigRules find_rules);

}  // namespace tandem
