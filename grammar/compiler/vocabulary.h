#pragma once

// A model's tokens as xgrammar wants them, and its compiler, warmed up so that processes forked
// from this one find the masks of common rules (strings, numbers, blanks) already made.
// Thread: any one. Failure: what the model folder's tokenizer lacks, in Load.

#include <cstdint>
#include <string>
#include <vector>

#include <xgrammar/xgrammar.h>

#include "common/ids.h"
#include "common/status.h"

namespace tandem {

class GrammarVocabulary {
 public:
  // vocab_size: the model's, whose masks are made; it may differ from the tokenizer's.
  // tokenizer_folder: empty, or one with another tokenizer than the model's.
  static StatusOr<GrammarVocabulary> Load(const std::string& model_folder, int32_t vocab_size,
                                          const std::string& tokenizer_folder = "");

  // Makes more such masks, in pieces of up to seconds. False: there are no more.
  bool WarmUpFurther();

  int32_t size() const { return tokens_.GetVocabSize(); }
  xgrammar::GrammarCompiler& compiler() { return compiler_; }
  // Tokens that do not show in a text, except those that end one.
  const std::vector<TokenId>& special_tokens() const { return special_tokens_; }
  // Tokens that begin within a character.
  const std::vector<TokenId>& continuing_tokens() const { return continuing_tokens_; }
  const std::string& text(TokenId id) const {
    return tokens_.GetDecodedVocab()[static_cast<size_t>(id)];
  }
  bool has_end() const { return !tokens_.GetStopTokenIds().empty(); }

 private:
  explicit GrammarVocabulary(xgrammar::TokenizerInfo tokens);

  xgrammar::TokenizerInfo tokens_;
  xgrammar::GrammarCompiler compiler_;
  std::vector<TokenId> special_tokens_;
  std::vector<TokenId> continuing_tokens_;
  size_t num_warmed_up_ = 0;  // of the further ones
};

}  // namespace tandem
