#pragma once

// Reads tokenizers that are lists of tokens: vocab.json with merges.txt (byte-level BPE) and
// vocab.txt (WordPiece). How text is cut and normalized belongs to the class that
// tokenizer_config.json names; without one they are GPT-2's and BERT's. The result is what
// transformers makes of the files: a tokenizer.json.
// Pure; any thread. Fails with InvalidArgument (malformed; the file and line) or Unimplemented (a
// class that is not known, by name). To add a class: a row in vocabulary_files.cc.

#include <memory>
#include <string_view>

#include "frontend/text/tokenizer_file.h"

namespace tandem {

// *config gets the names of special tokens that it lacks; config_json is its source.
StatusOr<std::unique_ptr<TokenizerFile>> ParseVocabAndMerges(std::string_view vocab_json,
                                                             std::string_view merges_txt,
                                                             std::string_view config_json,
                                                             TokenizerConfig* config);
StatusOr<std::unique_ptr<TokenizerFile>> ParseVocabTxt(std::string_view vocab_txt,
                                                       std::string_view config_json,
                                                       TokenizerConfig* config);

}  // namespace tandem
