#pragma once

// What HTTP decides about a request before any handler sees it: routes, API keys, content types,
// draining, CORS. Pure functions of the options and the request's head; any thread.

#include <optional>
#include <string_view>

#include "frontend/http/router.h"
#include "frontend/http/server_options.h"

namespace tandem {

// The answer to a request that must not reach a handler; nullopt: let it through.
std::optional<Response> Refusal(const ServerOptions& options, const Router::Match& match,
                                const HttpRequest& request, bool has_body, bool draining);

// Access-Control-* of the answer to this request; none when the origin is not allowed.
HeaderList CorsHeaders(const CorsOptions& cors, const HttpRequest& request);

}  // namespace tandem
