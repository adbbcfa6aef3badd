#pragma once

// Finds the files of a model folder's tokenizer and reads the first kind that is there:
// tokenizer.json, tokenizer.model (SentencePiece or tiktoken), tiktoken.model or *.tiktoken,
// tekken.json, spiece.model, vocab.json with merges.txt, vocab.txt; and beside it
// tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat templates.
// Pure but for the files; any thread. NotFound: none of these. Unimplemented: another program's
// file. Messages name the file.

#include <memory>
#include <string>

#include "frontend/text/tokenizer_file.h"

namespace tandem {

struct TokenizerParts {
  std::unique_ptr<TokenizerFile> file;
  TokenizerConfig config;
};
StatusOr<TokenizerParts> ReadTokenizerFolder(const std::string& model_folder);
// Whether it has a file that may be read, or is refused by name.
bool HasTokenizerFile(const std::string& model_folder);

}  // namespace tandem
