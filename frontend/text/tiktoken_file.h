#pragma once

// Reads a tiktoken file (a line per token: the base64 of its bytes, a blank, its rank, which is its
// id) into the parts a Tokenizer runs on. The file has neither the pattern that splits text nor the
// special tokens: both belong to a family, named by tokenizer_class of tokenizer_config.json;
// tokens of its added_tokens_decoder win over the family's.
// Pure; any thread. Fails with InvalidArgument (malformed; the line's number) or Unimplemented (a
// family that is not known, by name). Ids equal those of the tiktoken library.
// To add a family: a row in tiktoken_file.cc.

#include <memory>
#include <string_view>

#include "frontend/text/tokenizer_file.h"

namespace tandem {

// Whether the first line has the form of such a file.
bool IsTiktokenFile(std::string_view bytes);

StatusOr<std::unique_ptr<TokenizerFile>> ParseTiktokenFile(std::string_view bytes,
                                                           const TokenizerConfig& config);

}  // namespace tandem
