#pragma once

// HTTP's decisions about a request before a handler gets it: routes, API keys, content types,
// draining, CORS. Pure functions of the options and the request's head; any thread.

#include <optional>
#include <string_view>

#include "frontend/http/api_keys.h"
#include "frontend/http/router.h"
#include "frontend/http/server_options.h"

namespace tandem {

// The response to a request that must not reach a handler; nullopt: it may.
std::optional<Response> Refusal(const ServerOptions& options, const ApiKeys& keys,
                                const Router::Match& match, const HttpRequest& request,
                                bool has_body, bool draining);

// Access-Control-* of the response to this request; none when the origin is not allowed.
HeaderList CorsHeaders(const CorsOptions& cors, const HttpRequest& request);

}  // namespace tandem
