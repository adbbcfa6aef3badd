#include "frontend/api/routes.h"

#include "frontend/api/chat_completions.h"
#include "frontend/api/completions.h"
#include "frontend/api/dev.h"
#include "frontend/api/generate.h"
#include "frontend/api/generate_tokens.h"
#include "frontend/api/health.h"
#include "frontend/api/invocations.h"
#include "frontend/api/messages.h"
#include "frontend/api/models.h"
#include "frontend/api/responses.h"
#include "frontend/api/tokenize.h"

namespace tandem {

// clang-format off
std::vector<Route> ApiRoutes(std::vector<ApiContext*> contexts) {
  // A handler gets its shard's context.
  const auto on_shard = [&contexts](Awaitable<void> (*handle)(Exchange&, ApiContext*)) -> Handler {
    return [contexts, handle](Exchange& exchange) {
      return handle(exchange, contexts[static_cast<size_t>(exchange.shard().index())]);
    };
  };
  // An endpoint that generates.
  const auto generates = [&contexts](MakeCall make_call) -> Handler {
    return [contexts, make_call](Exchange& exchange) {
      return Generate(exchange, contexts[static_cast<size_t>(exchange.shard().index())], make_call);
    };
  };
  // Probes and scrapes: open, not counted, not logged, served until the process ends.
  const auto probe = [&on_shard](std::string method, std::string path,
                                 Awaitable<void> (*handle)(Exchange&, ApiContext*)) {
    return Route{.method = std::move(method), .path = std::move(path), .handler = on_shard(handle),
                 .guarded = false, .counted = false, .json_body = false, .during_drain = true};
  };
  std::vector<Route> routes = {
      {.method = "POST", .path = "/v1/chat/completions", .handler = generates(MakeChatCompletion)},
      {.method = "POST", .path = "/v1/completions", .handler = generates(MakeCompletion)},
      {.method = "POST", .path = "/v1/chat/completions/batch", .handler = generates(MakeChatBatch)},
      {.method = "POST", .path = "/v1/responses", .handler = on_shard(HandleResponses)},
      {.method = "GET", .path = "/v1/responses/{response_id}", .handler = on_shard(HandleGetResponse)},
      {.method = "DELETE", .path = "/v1/responses/{response_id}", .handler = on_shard(HandleDeleteResponse)},
      {.method = "POST", .path = "/v1/responses/{response_id}/cancel", .handler = on_shard(HandleCancelResponse)},
      {.method = "POST", .path = "/invocations", .handler = generates(MakeInvocation)},
      {.method = "POST", .path = "/inference/v1/generate", .handler = generates(MakeTokenGeneration)},
      {.method = "POST", .path = "/v1/messages", .handler = generates(MakeMessage)},
      {.method = "POST", .path = "/v1/messages/count_tokens", .handler = on_shard(HandleCountTokens)},
      {.method = "GET", .path = "/v1/models", .handler = on_shard(HandleModels)},
      {.method = "GET", .path = "/v1/models/{model_id:path}", .handler = on_shard(HandleModel)},
      {.method = "POST", .path = "/tokenize", .handler = on_shard(HandleTokenize), .guarded = false},
      {.method = "POST", .path = "/detokenize", .handler = on_shard(HandleDetokenize), .guarded = false},
      probe("GET", "/health", HandleHealth),
      probe("GET", "/ready", HandleReady),
      probe("GET", "/ping", HandleHealth),
      probe("POST", "/ping", HandleHealth),
      probe("GET", "/version", HandleVersion),
      probe("GET", "/load", HandleLoad),
      probe("GET", "/metrics*", HandleMetrics),
      {.method = "GET", .path = "/kv_event_sources", .handler = on_shard(HandleKvEventSources), .guarded = false},
  };
  if (contexts.front()->facts->dev_mode) {
    for (Route& route : DevRoutes(contexts)) routes.push_back(std::move(route));
  } else {
    routes.push_back({.method = "GET", .path = "/is_sleeping", .handler = on_shard(HandleIsSleeping), .guarded = false});
  }
  return routes;
}
// clang-format on

}  // namespace tandem
