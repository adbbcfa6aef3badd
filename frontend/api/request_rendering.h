#pragma once

// POST /v1/chat/completions/render and /v1/completions/render: a request as the body that
// /inference/v1/generate takes, so that another server can run it. Nothing is run here.
// Thread: handlers on the exchange's shard; rendering is pure, on the text pool.

#include <string>
#include <string_view>

#include "frontend/api/context.h"
#include "frontend/api/generate.h"
#include "frontend/http/router.h"

namespace tandem {

// A chat's body → one object; a completion's → a list with an object for each prompt. JSON text.
StatusOr<std::string> RenderedChat(std::string_view body, const RequestHeaders& headers,
                                   const ApiContext& context);
StatusOr<std::string> RenderedCompletion(std::string_view body, const RequestHeaders& headers,
                                         const ApiContext& context);

Awaitable<void> HandleRenderChat(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleRenderCompletion(Exchange& exchange, ApiContext* context);

}  // namespace tandem
