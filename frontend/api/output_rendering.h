#pragma once

// POST /v1/chat/completions/derender and /v1/completions/derender: what /inference/v1/generate has
// returned as the response that a chat or a completion would have been. The request that it was
// rendered from, when it comes along, decides about stop strings, parsers and what is shown.
// Of a stream each event is a request of its own; what must be known from the ones before it is in
// stream_state, which the client passes on.
// Thread: handlers on the exchange's shard; the work is pure, on the text pool.

#include <string>
#include <string_view>

#include "frontend/api/context.h"
#include "frontend/api/generate.h"
#include "frontend/http/router.h"

namespace tandem {

StatusOr<std::string> DerenderedChat(std::string_view body, const RequestHeaders& headers,
                                     const ApiContext& context);
StatusOr<std::string> DerenderedCompletion(std::string_view body, const RequestHeaders& headers,
                                           const ApiContext& context);

Awaitable<void> HandleDerenderChat(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleDerenderCompletion(Exchange& exchange, ApiContext* context);

}  // namespace tandem
