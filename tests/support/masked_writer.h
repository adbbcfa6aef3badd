#pragma once

// Outputs of the shipped model's vocabulary under a grammar, without a model: each token is drawn
// from those that the mask allows. Thread: the test's. Failure: a mask that allows nothing, or a
// token that it allows and the matcher refuses, fails the test.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/text/tokenizer.h"
#include "grammar/compiler/token_matcher.h"
#include "tests/support/dice.h"

namespace tandem {

class MaskedWriter {
 public:
  explicit MaskedWriter(uint64_t seed);

  Dice& dice() { return dice_; }
  const GrammarVocabulary& vocabulary() const { return vocabulary_; }
  StatusOr<xgrammar::CompiledGrammar> Compile(const GrammarSpec& spec) {
    return CompileGrammar(spec, &vocabulary_);
  }
  // A whole output, or nothing when it does not end soon.
  std::optional<std::string> Write(const xgrammar::CompiledGrammar& grammar);
  // Whether the grammar allows the text as a whole output, in tokens drawn at random.
  bool Allows(const xgrammar::CompiledGrammar& grammar, std::string_view text);
  // One of those that the mask allows; -1: it allows none.
  TokenId Draw(std::span<const int32_t> mask);

 private:
  TokenId DrawPrefixOf(std::string_view text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  GrammarVocabulary vocabulary_;
  Dice dice_;
};

}  // namespace tandem
