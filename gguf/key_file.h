#pragma once

// A GGUF file of keys without tensors: what a tokenizer and a chat template need of a model. Pure;
// any thread.

#include <string>

#include "gguf/metadata.h"

namespace tandem {

// The file's bytes: all keys but those of a model in several files.
std::string GgufKeyFile(const GgufMetadata& metadata);

}  // namespace tandem
