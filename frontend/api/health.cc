#include "frontend/api/health.h"

#include "common/version.h"
#include "frontend/api/error.h"
#include "frontend/api/routes.h"

namespace tandem {

Awaitable<void> HandleHealth(Exchange& exchange, ApiContext* context) {
  const Status health = context->engine_client->health();
  if (!health.ok()) {
    exchange.Respond(ErrorResponse(UnavailableError(health.message())));
    co_return;
  }
  exchange.Respond({200, "", "", {}});
}

Awaitable<void> HandleReady(Exchange& exchange, ApiContext* context, const ServerFacts* facts) {
  if (facts->is_draining()) {
    exchange.Respond(ErrorResponse(UnavailableError("the server is shutting down")));
    co_return;
  }
  co_await HandleHealth(exchange, context);
}

Awaitable<void> HandleVersion(Exchange& exchange) {
  exchange.Respond(
      {200, R"({"version":")" + std::string(kVllmVersion) + "\"}", "application/json", {}});
  co_return;
}

Awaitable<void> HandleLoad(Exchange& exchange, const ServerFacts* facts) {
  const int load = facts->track_load ? facts->num_exchanges() : 0;
  exchange.Respond(
      {200, R"({"server_load":)" + std::to_string(load) + "}", "application/json", {}});
  co_return;
}

// An engine of ours never sleeps; routers ask anyway.
Awaitable<void> HandleIsSleeping(Exchange& exchange) {
  exchange.Respond({200, R"({"is_sleeping":false})", "application/json", {}});
  co_return;
}

Awaitable<void> HandleMetrics(Exchange& exchange, const Metrics* metrics) {
  exchange.Respond({200, metrics->Scrape(), std::string(Metrics::kContentType), {}});
  co_return;
}

}  // namespace tandem
