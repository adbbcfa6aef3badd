#pragma once

// Tokens of a choice that does not show all of them, until the parser has decided what their text
// is: those of reasoning, where that is hidden, and of its markers are dropped, the others go into
// the delta; likewise logprobs where those of content alone are shown.
// Thread: the shard that owns the stream.

#include <cstddef>
#include <vector>

#include "common/ids.h"
#include "frontend/processing/message_delta.h"

namespace tandem {

struct HeldTokens {
  std::vector<TokenId> token_ids;          // or none
  std::vector<PositionLogprobs> logprobs;  // of the same tokens, or none
  size_t num_parsed = 0;                   // of them, those whose text the parser has
  bool last_is_hidden = false;             // as decided

  // The parser has been given text. is_hidden: some of it is not shown, or ended what is not;
  // is_shown: some is; neither: it is undecided yet.
  void Decide(bool is_hidden, bool is_shown, MessageDelta* delta);
  // The text has ended.
  void DecideRest(bool is_hidden, MessageDelta* delta);

 private:
  void Drop(size_t count);
  void Show(size_t count, MessageDelta* delta);
};

}  // namespace tandem
