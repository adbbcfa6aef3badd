#pragma once

// Reads tokenizer.json and tokenizer_config.json into the parts a Tokenizer runs on.
// Pure; any thread. Fails with InvalidArgument (malformed) or Unimplemented (a kind we do not
// know), the message naming the place; never crashes on hostile files.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/text/added_tokens.h"
#include "frontend/text/decoder.h"
#include "frontend/text/normalizer.h"
#include "frontend/text/pretokenizer.h"
#include "frontend/text/token_model.h"
#include "frontend/text/vocabulary.h"

namespace tandem {

struct TokenizerFile {
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  std::unique_ptr<TokenModel> model;
  TokenDecoder decoder;
  std::vector<TokenId> prefix_ids;  // around the text when special tokens are asked for
  std::vector<TokenId> suffix_ids;
  Vocabulary spelled;   // tokens as the file spells them, added tokens included
  TokenTexts bytes;     // what each adds to a text
  TokenTexts prepared;  // for the decoder; empty when it is the same as bytes
};
StatusOr<std::unique_ptr<TokenizerFile>> ParseTokenizerFile(std::string_view tokenizer_json);

struct TokenizerConfig {
  std::map<std::string, std::string> special_tokens;  // "bos_token" → "<s>"
  std::string chat_template;
};
StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view config_json);

}  // namespace tandem
