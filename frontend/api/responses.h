#pragma once

// POST /v1/responses, made of chat's parts: its request becomes a chat request, its output items
// come from the same deltas. With a store (response_store.h) a response may run in the background,
// and GET, DELETE and POST …/cancel under /v1/responses/{response_id} reach it later.
// Thread: the exchange's shard.

#include <memory>

#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"
#include "frontend/http/router.h"

namespace tandem {

std::unique_ptr<GenerationCall> MakeResponse(const ApiContext& context);

Awaitable<void> HandleResponses(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleGetResponse(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleDeleteResponse(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleCancelResponse(Exchange& exchange, ApiContext* context);

}  // namespace tandem
