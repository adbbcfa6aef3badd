#pragma once

// Reads tokenizer.json and tokenizer_config.json into the parts a Tokenizer runs on.
// Pure; any thread. Fails with InvalidArgument (malformed) or Unimplemented (an unsupported
// kind); the message names the place; never crashes on hostile files.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/text/added_tokens.h"
#include "frontend/text/decoder.h"
#include "frontend/text/normalizer.h"
#include "frontend/text/pretokenizer.h"
#include "frontend/text/token_model.h"
#include "frontend/text/vocabulary.h"

namespace tandem {

// How a ByteLevel or Roberta post-processor with trim_offsets moves offsets: blanks at a token's
// ends are not in them, but for the blank that add_prefix_space puts before the text.
struct OffsetTrim {
  bool add_prefix_space = true;
};

// What stands around and between two texts.
struct PairTemplate {
  std::vector<TokenId> prefix_ids, between_ids, suffix_ids;
  bool has_types = false;  // the second text has a type of its own
};

struct TokenizerFile {
  std::vector<AddedToken> added_tokens;
  std::vector<AddedToken> symbols;   // of the model, found in normalized text
  std::vector<TokenId> special_ids;  // special besides those of added_tokens
  Normalizer normalizer;
  std::optional<Normalizer> inner_normalizer;  // for parts that do not start the text
  Pretokenizer pretokenizer;
  std::unique_ptr<TokenModel> model;
  TokenDecoder decoder;
  std::vector<TokenId> prefix_ids;  // around the text with add_special_tokens
  std::vector<TokenId> suffix_ids;
  PairTemplate pair;
  std::optional<OffsetTrim> offset_trim;
  Vocabulary spelled;   // tokens as the file spells them, added tokens included
  TokenTexts bytes;     // what each adds to a text
  TokenTexts prepared;  // for the decoder; empty when it is the same as bytes
};
StatusOr<std::unique_ptr<TokenizerFile>> ParseTokenizerFile(std::string_view tokenizer_json);
StatusOr<std::unique_ptr<TokenizerFile>> MakeTokenizerFile(const nlohmann::json& root);

struct TokenizerConfig {
  std::map<std::string, std::string> special_tokens;  // "bos_token" → "<s>"
  std::vector<std::string> other_special_tokens;      // without a name
  std::map<std::string, std::string> chat_templates;  // by name; a single one is "default"
  // Only the other files need the rest; tokenizer.json has its own, as in transformers 5.
  std::string tokenizer_class;
  std::vector<AddedToken> added_tokens;
  bool has_added_tokens_decoder = false;
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  bool legacy = true;  // false: no blank is put before a text after an added token
};
// Fills the vocabularies from the model's tokens and the added tokens, which win.
Status FillVocabularies(const TokenList& vocab, TokenizerFile* file);

StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view config_json);
// Older folders' files, which count where the config has no added_tokens_decoder: what is in
// special_tokens_map.json wins; added_tokens.json, read after it, has ids by text.
Status AddSpecialTokensMap(std::string_view special_tokens_map_json, TokenizerConfig* config);
Status AddAddedTokens(std::string_view added_tokens_json, TokenizerConfig* config);

// Tokens of the vocabulary that the config names as special, and that are no added tokens of the
// file, become such.
void MarkSpecialTokens(const TokenizerConfig& config, TokenizerFile* file);

}  // namespace tandem
