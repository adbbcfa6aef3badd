#include "frontend/api/routes.h"

#include "frontend/api/chat_completions.h"
#include "frontend/api/completions.h"
#include "frontend/api/dev.h"
#include "frontend/api/error.h"
#include "frontend/api/generate.h"
#include "frontend/api/health.h"
#include "frontend/api/models.h"
#include "frontend/api/tokenize.h"

namespace tandem {

// clang-format off
std::vector<Route> ApiRoutes(std::vector<ApiContext*> contexts, const ServerFacts* facts,
                             const Metrics* metrics) {
  // A handler that gets its shard's context.
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
  const Handler ready = [contexts, facts](Exchange& exchange) {
    return HandleReady(exchange, contexts[static_cast<size_t>(exchange.shard().index())], facts);
  };
  const Handler models = [contexts, facts](Exchange& exchange) {
    return HandleModels(exchange, contexts[static_cast<size_t>(exchange.shard().index())], facts);
  };
  const Handler model = [contexts, facts](Exchange& exchange) {
    return HandleModel(exchange, contexts[static_cast<size_t>(exchange.shard().index())], facts);
  };
  const Handler load = [facts](Exchange& exchange) { return HandleLoad(exchange, facts); };
  const Handler show_metrics = [metrics](Exchange& exchange) { return HandleMetrics(exchange, metrics); };

  // Probes and scrapes: open, not counted, not logged, served until the process ends.
  constexpr auto kProbe = [](std::string method, std::string path, Handler handler) {
    return Route{.method = std::move(method), .path = std::move(path), .handler = std::move(handler),
                 .guarded = false, .counted = false, .json_body = false, .during_drain = true};
  };
  std::vector<Route> routes = {
      {.method = "POST", .path = "/v1/chat/completions", .handler = generates(MakeChatCompletion)},
      {.method = "POST", .path = "/v1/completions", .handler = generates(MakeCompletion)},
      {.method = "GET", .path = "/v1/models", .handler = models},
      {.method = "GET", .path = "/v1/models/*", .handler = model},
      {.method = "POST", .path = "/tokenize", .handler = on_shard(HandleTokenize)},
      {.method = "POST", .path = "/detokenize", .handler = on_shard(HandleDetokenize)},
      kProbe("GET", "/health", on_shard(HandleHealth)),
      kProbe("GET", "/ready", ready),
      kProbe("GET", "/ping", on_shard(HandleHealth)),
      kProbe("POST", "/ping", on_shard(HandleHealth)),
      kProbe("GET", "/version", HandleVersion),
      kProbe("GET", "/load", load),
      kProbe("GET", "/metrics*", show_metrics),
      {.method = "GET", .path = "/kv_event_sources", .handler = on_shard(HandleKvEventSources)},
  };
  if (facts->dev_mode) {
    for (Route& route : DevRoutes(contexts, facts)) routes.push_back(std::move(route));
  } else {
    routes.push_back({.method = "GET", .path = "/is_sleeping", .handler = HandleIsSleeping});
  }
  return routes;
}
// clang-format on

Response HttpErrorResponse(int status, std::string_view message) {
  const ApiError error{status, std::string(ReasonPhrase(status)), std::string(message), ""};
  return {status, ErrorBody(error), "application/json", {}};
}

}  // namespace tandem
