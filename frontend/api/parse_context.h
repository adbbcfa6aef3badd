#pragma once

// What is needed of a chat to make its message of the model's text, as vLLM's render and generate
// routes pass it on: `parse_context`. Pure; any thread.

#include "common/status.h"
#include "frontend/openai/chat_request.h"

namespace tandem {

// defaults: the server's variables of the template.
Json ParseContextJson(const ChatRequest& request, const JsonDocument& defaults);

// A chat with these fields and without a conversation. INVALID_ARGUMENT: a field is unknown, so it
// is of a newer server, or has a value that no chat has.
StatusOr<ChatRequest> ChatOfParseContext(const Json& context);

}  // namespace tandem
