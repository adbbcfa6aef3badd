#pragma once

// Shows whether two model folders have the same tokenizer: requests may move between engines
// only if their token ids mean the same. The engine has no tokenizer of its own; this is a hash of
// the files that the frontend reads (frontend/text/tokenizer_folder.h), and it is compared, not
// trusted.
// Thread: main, at start.

#include <optional>
#include <string>

namespace tandem {

// Of a GGUF file: of its keys for the tokenizer. nullopt: the folder has no such file, or none that
// can be read.
std::optional<std::string> TokenizerHash(const std::string& model_folder);

}  // namespace tandem
