#pragma once

// Byte-level BPE of files that list tokens as bytes in the order of their ranks, and nothing of how
// pairs merge: any two neighbours that spell a token do, the lowest id first. Pure; any thread.

#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "frontend/text/tokenizer_file.h"

namespace tandem {

struct RankedTokens {
  TokenList tokens;             // bytes by id
  std::string pattern;          // what text is cut by
  std::string normalizer = {};  // kind of tokenizer.json; empty: none
  std::vector<AddedToken> added_tokens = {};
};

// The tokenizer without prefix and suffix. InvalidArgument: a byte without a token, a pattern that
// is no regular expression.
StatusOr<std::unique_ptr<TokenizerFile>> MakeRankedTokenizer(RankedTokens ranked);

}  // namespace tandem
