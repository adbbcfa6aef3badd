#pragma once

// POST /v1/chat/completions/render, /v1/completions/render, /v1/responses/render and
// /v1/messages/render: a request as the body that /inference/v1/generate takes, so that another
// server can run it; of a completion a list with one for each prompt. Nothing is run here.
// Thread: handlers on the exchange's shard, the work on the text pool.

#include "frontend/api/context.h"
#include "frontend/http/router.h"

namespace tandem {

Awaitable<void> HandleRenderChat(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleRenderCompletion(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleRenderResponse(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleRenderMessage(Exchange& exchange, ApiContext* context);

}  // namespace tandem
