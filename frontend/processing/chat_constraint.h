#pragma once

// What the output of a chat must be, as one constraint: what its tools and tool_choice ask for in
// the parser's format, and what the request itself asks for. Pure; any thread.

#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"
#include "frontend/openai/chat_request.h"
#include "frontend/processing/message_plan.h"
#include "frontend/processing/reasoning_tokens.h"

namespace tandem {

struct ChatConstraint {
  // Whether the constraint holds from the first token on. Empty: there is none, or nothing decides.
  std::optional<bool> reasoning_ended;
  bool has_calls = false;         // a call's mark ends the reasoning and belongs to the constraint
  std::string_view warning = {};  // a part of the request has no effect; empty: none
  std::string tool_tag = {};  // the structural tag, as text, that tools are part of; empty: none
};

// Replaces the request's constraint by the whole one, in structured_outputs. plan: null where text
// is content; text that a constraint holds from the first token on is no reasoning, so the plan's
// start follows. tokens: what an engine that waits for the end of reasoning sees of it.
// INVALID_ARGUMENT: there are two constraints, or the tools cannot be one.
StatusOr<ChatConstraint> ConstrainChat(const ParserConfig& parsers, const ReasoningTokens& tokens,
                                       MessagePlan* plan, ChatRequest* request);

}  // namespace tandem
