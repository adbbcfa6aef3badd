#include "frontend/api/health.h"

#include <nlohmann/json.hpp>

#include "common/version.h"
#include "frontend/api/engine_process.h"
#include "frontend/api/error.h"
#include "frontend/metrics/exposition.h"
#include "frontend/openai/json.h"

namespace tandem {

Awaitable<void> HandleHealth(Exchange& exchange, ApiContext* context) {
  const Status health = context->engine_client->CheckAlive(context->clock->Monotonic());
  if (!health.ok()) {
    exchange.Respond(ErrorResponse(UnavailableError(health.message())));
    co_return;
  }
  exchange.Respond({200, "", "", {}});
}

Awaitable<void> HandleReady(Exchange& exchange, ApiContext* context) {
  if (context->facts->is_draining()) {
    exchange.Respond(ErrorResponse(UnavailableError("the server is shutting down")));
    co_return;
  }
  co_await HandleHealth(exchange, context);
}

Awaitable<void> HandleVersion(Exchange& exchange, ApiContext*) {
  exchange.Respond(
      {200, R"({"version":")" + std::string(kVllmVersion) + "\"}", "application/json", {}});
  co_return;
}

Awaitable<void> HandleLoad(Exchange& exchange, ApiContext* context) {
  const ServerFacts& facts = *context->facts;
  const int load = facts.track_load ? facts.num_requests() : 0;
  exchange.Respond(
      {200, R"({"server_load":)" + std::to_string(load) + "}", "application/json", {}});
  co_return;
}

// Without the dev routes nothing can put the engine to sleep; routers call this all the same.
Awaitable<void> HandleIsSleeping(Exchange& exchange, ApiContext*) {
  exchange.Respond({200, R"({"is_sleeping":false})", "application/json", {}});
  co_return;
}

// Where routers can subscribe: data-parallel rank → its engine's publisher.
Awaitable<void> HandleKvEventSources(Exchange& exchange, ApiContext* context) {
  Json sources = Json::object();
  for (int i = 0; i < context->engine_client->num_engines(); ++i) {
    const wire::EngineCoreReadyResponse& info = context->engine_client->engine_info(i);
    if (info.kv_events_config.is_nil()) continue;
    Json config = Json::from_msgpack(info.kv_events_config.packed, /*strict=*/true,
                                     /*allow_exceptions=*/false);
    if (config.is_object()) sources[std::to_string(info.data_parallel_rank)] = std::move(config);
  }
  exchange.Respond({200, DumpJson(sources), "application/json", {}});
  co_return;
}

Awaitable<void> HandleMetrics(Exchange& exchange, ApiContext* context) {
  AskEngineProcesses(context);
  FrontendMetrics& metrics = context->metrics->frontend();
  metrics.queued_requests.Set(static_cast<double>(context->admission_gate->num_queued_reqs()));
  metrics.queued_prompt_tokens.Set(
      static_cast<double>(context->admission_gate->num_queued_tokens()));
  const int64_t num_waiting = context->text_pool == nullptr ? 0 : context->text_pool->num_waiting();
  metrics.text_pool_waiting_jobs.Set(static_cast<double>(num_waiting));
  const bool is_open = WantsOpenMetrics(exchange.request().Header("accept"));
  std::string text =
      context->metrics->Scrape(is_open ? MetricsFormat::kOpenMetrics : MetricsFormat::kText);
  exchange.Respond({200,
                    std::move(text),
                    std::string(is_open ? Metrics::kOpenMetricsContentType : Metrics::kContentType),
                    {}});
  co_return;
}

}  // namespace tandem
