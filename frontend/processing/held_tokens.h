#pragma once

// Tokens of a choice whose reasoning is not shown, until the parser has decided what their text is:
// those of reasoning and of its markers are dropped, the others go into the delta.
// Thread: the shard that owns the stream.

#include <cstddef>
#include <vector>

#include "common/ids.h"
#include "frontend/processing/message_delta.h"

namespace tandem {

struct HeldTokens {
  std::vector<TokenId> token_ids;
  std::vector<PositionLogprobs> logprobs;  // one for each of token_ids, or none
  size_t num_parsed = 0;                   // of them, those whose text the parser has

  // The parser has been given text. is_reasoning: some of it is reasoning, or ended one; has_parts:
  // some of it is content or a call, and neither: it is undecided yet.
  void Decide(bool is_reasoning, bool has_parts, MessageDelta* delta);
  // The text has ended.
  void DecideRest(bool is_reasoning, MessageDelta* delta);

 private:
  void Drop(size_t count);
  void Show(size_t count, MessageDelta* delta);
};

}  // namespace tandem
