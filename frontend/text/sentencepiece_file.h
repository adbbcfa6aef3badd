#pragma once

// Reads SentencePiece's tokenizer.model (a protobuf message) into the parts a Tokenizer runs on.
// Pure; any thread. Fails with InvalidArgument (malformed) or Unimplemented (a model type or
// feature that is not supported, by name); never crashes on hostile files. Ids and texts equal
// those of the sentencepiece library 0.2.3: control symbols are no text, so they are found in a
// text only where tokenizer_config.json names them.

#include <memory>
#include <string_view>

#include "frontend/text/tokenizer_file.h"

namespace tandem {

StatusOr<std::unique_ptr<TokenizerFile>> ParseSentencePieceFile(std::string_view bytes,
                                                                const TokenizerConfig& config);

}  // namespace tandem
