#pragma once

// The models of whole words: WordPiece cuts a word into the longest tokens it begins with,
// WordLevel looks it up, MarkedWords looks each of the words of a text up. Thread: immutable; any
// thread. All own their vocabulary. Encode: InvalidArgument when a word is unknown and there is no
// unknown token.

#include <array>
#include <optional>
#include <string>

#include "frontend/text/token_model.h"
#include "frontend/text/vocabulary.h"

namespace tandem {

struct WordPieceModelOptions {
  std::optional<TokenId> unknown_id;
  std::string continuing_prefix = "##";  // spells the tokens inside a word
  size_t max_chars_per_word = 100;       // longer words are unknown
};

class WordPiece : public TokenModel {
 public:
  WordPiece(Vocabulary vocabulary, WordPieceModelOptions options);
  Status Encode(std::string_view piece, std::vector<TokenId>* ids) const override;

 private:
  const Vocabulary vocabulary_;
  const WordPieceModelOptions options_;
};

class WordLevel : public TokenModel {
 public:
  WordLevel(Vocabulary vocabulary, std::optional<TokenId> unknown_id);
  Status Encode(std::string_view piece, std::vector<TokenId>* ids) const override;

 private:
  const Vocabulary vocabulary_;
  const std::optional<TokenId> unknown_id_;
};

struct MarkedWordsOptions {
  TokenId unknown_id = 0;
  TokenList byte_tokens;  // <0xNN>; unknown words are spelled by them where there are all 256
};

// SentencePiece's model of words, which begin with the mark of a blank, U+2581. Without bytes
// neighbouring unknown words are one token.
class MarkedWords : public TokenModel {
 public:
  MarkedWords(Vocabulary vocabulary, const MarkedWordsOptions& options);
  Status Encode(std::string_view piece, std::vector<TokenId>* ids) const override;

 private:
  const Vocabulary vocabulary_;
  const TokenId unknown_id_;
  bool has_bytes_ = true;
  std::array<TokenId, 256> byte_ids_ = {};
};

}  // namespace tandem
