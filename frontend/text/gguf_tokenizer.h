#pragma once

// The tokenizer that a GGUF file contains, as the parts a Tokenizer runs on: byte-level BPE
// ("gpt2"), SentencePiece's BPE ("llama") and unigram ("t5"), WordPiece ("bert").
// Pure; any thread. Fails with InvalidArgument (malformed) or Unimplemented (a kind, or a way to
// cut text, that is not supported, by name); never crashes on hostile files. Ids equal llama.cpp's.
// To add a way to cut text: a row in gguf_tokenizer.cc.

#include <memory>

#include "frontend/text/tokenizer_file.h"
#include "gguf/metadata.h"

namespace tandem {

// *config gets special tokens, added tokens and the chat template.
StatusOr<std::unique_ptr<TokenizerFile>> ReadGgufTokenizer(const GgufMetadata& metadata,
                                                           TokenizerConfig* config);

}  // namespace tandem
