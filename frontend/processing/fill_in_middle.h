#pragma once

// Prompts of code models for the text between two others, in the form that a model was trained on,
// which the special tokens of its tokenizer show.
// Pure; any thread. To add a form: a row in fill_in_middle.cc.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/text/tokenizer.h"

namespace tandem {

struct FillInMiddle {
  TokenId before = -1;          // its token stands before the text before the gap
  TokenId after = -1;           // before the text after the gap
  std::optional<TokenId> last;  // ends the prompt
  bool after_comes_first = false;
  std::optional<TokenId> stop;  // ends the output besides the model's own end
};

// nullopt: the tokenizer has no such tokens.
std::optional<FillInMiddle> FindFillInMiddle(const Tokenizer& tokenizer);

// Ids of a text that goes on after another: without the blank that a tokenizer puts before a text.
StatusOr<std::vector<TokenId>> EncodeContinuation(const Tokenizer& tokenizer,
                                                  std::string_view text);

// begins: with the tokenizer's token for the beginning of a text, where prompts have it.
std::vector<TokenId> FillInMiddlePrompt(const FillInMiddle& form, const Tokenizer& tokenizer,
                                        std::span<const TokenId> before,
                                        std::span<const TokenId> after, bool begins);

}  // namespace tandem
