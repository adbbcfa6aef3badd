#pragma once

// The tokens that end a model's output, as a GGUF file names them: the keys of its tokenizer, and
// where an older file has no key for the end of a turn, the control tokens that are known as such.
// Both processes need them. Pure; any thread. Failure: as GgufMetadata's; an id without a token.

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "gguf/metadata.h"

namespace tandem {

// tokenizer.ggml.NAME_token_id. nullopt: the file has none, or -1, as some converters write.
StatusOr<std::optional<TokenId>> GgufTokenId(const GgufMetadata& metadata, std::string_view name,
                                             size_t num_tokens);

// Each once; tokenizer.ggml.eos_token_id comes first.
StatusOr<std::vector<TokenId>> GgufEndTokens(const GgufMetadata& metadata);

}  // namespace tandem
