#pragma once

// From a request of Anthropic's API to the body of a chat request, which then goes the way of every
// chat: its parser checks what both APIs share, and a field that chat learns works here too.
// Pure; any thread.

#include "common/status.h"
#include "frontend/anthropic/messages_request.h"
#include "frontend/processing/template_traits.h"

namespace tandem {

// A JSON object with the fields of chat_request.h that the request sets. INVALID_ARGUMENT when it
// adds or removes a tool that it does not define.
StatusOr<Json> ChatBodyOf(MessagesRequest request, const TemplateTraits& traits);

}  // namespace tandem
