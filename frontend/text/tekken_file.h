#pragma once

// Reads Mistral's tekken.json: ranks of byte strings, the pattern that cuts text and the special
// tokens, which have the first ids. Pure; any thread. InvalidArgument: malformed, with the place.
// Ids equal those of mistral-common; special tokens are found in a text too, as transformers does
// with this file. A text with special tokens begins with <s>.

#include <memory>
#include <string_view>

#include "frontend/text/tokenizer_file.h"

namespace tandem {

// *config gets the names of special tokens that it lacks.
StatusOr<std::unique_ptr<TokenizerFile>> ParseTekkenFile(std::string_view bytes,
                                                         TokenizerConfig* config);

}  // namespace tandem
