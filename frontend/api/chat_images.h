#pragma once

// The images of chats that an endpoint has parsed. Thread: the exchange's shard.

#include <optional>
#include <span>

#include "frontend/api/context.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"
#include "frontend/openai/chat_request.h"

namespace tandem {

// Whether some of its images are not loaded yet.
bool NeedsImages(const ChatRequest& chat);

// Loads those of all chats of a request, which agree in what images are prepared and cached by.
// Ends early, with an error, when the client goes away or the deadline (monotonic seconds) is over.
// REQUIRES: InputProcessor::CheckImages was OK; there are some, and none is loaded.
Awaitable<Status> LoadImages(Exchange& exchange, const ApiContext* context,
                             std::optional<double> deadline, std::span<ChatRequest> chats);

}  // namespace tandem
