#pragma once

// What a GGUF file's layers are, as keys of config.json: their number, which of them keep states,
// have attention or experts, and the sizes of states. Kinds are read from the tensors that a layer
// has: the keys for them differ from architecture to architecture. Thread: any; pure. Failure: the
// Status names the key.

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"
#include "engine_core/weights/gguf_architectures.h"
#include "gguf/gguf_file.h"

namespace tandem {

Status AddLayers(const GgufFile& file, const GgufArchitecture& architecture,
                 nlohmann::json* config);

}  // namespace tandem
