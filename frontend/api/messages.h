#pragma once

// POST /v1/messages and POST /v1/messages/count_tokens: Anthropic's API over the same stages as
// chat completions. Errors have Anthropic's form: {"type": "error", "error": {"type", "message"}}.

#include <memory>
#include <string>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"
#include "frontend/net/net.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeMessage(const ApiContext& context);

// Counts what the template makes of the conversation, with the tokens of images.
Awaitable<void> HandleCountTokens(Exchange& exchange, ApiContext* context);

}  // namespace tandem
