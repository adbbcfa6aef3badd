#pragma once

// How this server's reasoning looks in tokens, which is all that an engine can see of it: for
// thinking_token_budget, and for grammars that begin after the reasoning. A value; any thread.

#include "frontend/processing/message_plan.h"
#include "frontend/text/tokenizer.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct ReasoningTokens {
  wire::ReasoningMarks marks;
  // A mark that is one token is always written as that token, so the engine cannot overlook it.
  bool ends_with_one_token = false;
  bool allows_budget() const { return !marks.begin.empty() && !marks.forced_end.empty(); }
};

// Without marks where the parsers have none.
ReasoningTokens FindReasoningTokens(const ParserConfig& parsers, const Tokenizer& tokenizer);

// Whether a marker of the reasoning parser is a special token, which a text does not have unless it
// shows them.
bool MarkersAreSpecial(const ParserConfig& parsers, const Tokenizer& tokenizer);

}  // namespace tandem
