#pragma once

// The tensors of a GGUF file by HF's names and in HF's order of rows, as models' loaders ask for
// them. Thread, ownership, failure: as Weights (safetensors.h); a tensor of a type that nothing
// here can read is refused when it is opened, by its name.

#include <memory>

#include "common/status.h"
#include "engine_core/weights/model_config.h"
#include "engine_core/weights/safetensors.h"
#include "gguf/gguf_file.h"

namespace tandem {

// config: the file's own.
StatusOr<std::unique_ptr<Weights>> OpenGguf(std::unique_ptr<GgufFile> file,
                                            const ModelConfig& config);

}  // namespace tandem
