#pragma once

// A compiled grammar, and the state of one output in it. The one place that calls xgrammar to
// compile and to match; its exceptions end here.
// Thread: any one. Failure: INVALID_ARGUMENT that names what is wrong with the spec, also for what
// xgrammar would leave out with a warning: a constraint is kept whole or refused.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <xgrammar/xgrammar.h>

#include "common/ids.h"
#include "common/status.h"
#include "grammar/compiler/vocabulary.h"
#include "grammar/mask_rows.h"
#include "grammar/protocol.h"

namespace tandem {

StatusOr<xgrammar::CompiledGrammar> CompileGrammar(const GrammarSpec& spec,
                                                   GrammarVocabulary* vocabulary);

class TokenMatcher {
 public:
  // The vocabulary is the grammar's and outlives it.
  TokenMatcher(const xgrammar::CompiledGrammar& grammar, const GrammarVocabulary* vocabulary);

  // False: the grammar does not allow the token. After the token that ends the output, everything
  // is allowed.
  bool Accept(TokenId token);
  // Bit i % 32 of word i / 32: whether token i may come next. Special tokens only where asked for.
  void FillMask(bool allows_special_tokens, std::span<int32_t> words);
  // Writes the run that begins here, as far as `run` has room, and returns its length. `words`: the
  // mask here. The matcher stays where it is.
  size_t FindRun(bool allows_special_tokens, std::span<const int32_t> words,
                 std::span<TokenId> run);
  // Writes the mask after each of the drafts to the rows after `row`, which has the mask here, and
  // returns the number of drafts that may follow one another. The matcher stays where it is.
  size_t FillMasksAfter(bool allows_special_tokens, std::span<const TokenId> drafts,
                        const MaskRows& masks, size_t row);

 private:
  void RollBack(bool allows_special_tokens, int num_tokens, std::string open_character);
  void RefuseBrokenCharacters(std::span<int32_t> words) const;

  const GrammarVocabulary* vocabulary_;
  xgrammar::GrammarMatcher matcher_;
  std::string open_character_;  // the bytes so far of a character that is not complete
  std::vector<int32_t> mask_;   // of a place within a run
};

}  // namespace tandem
