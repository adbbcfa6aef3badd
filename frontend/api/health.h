#pragma once

// GET /health (alive), GET /ready (would a request succeed now) and the server's other reports
// about itself: /ping, /version, /load, /is_sleeping (without dev mode), /kv_event_sources,
// /metrics. All respond at once from the frontend's memory, so probes and scrapes cost nothing
// under load. /health sends the engine a small call, and the next /health checks for its reply.
// Thread: the exchange's shard.

#include "frontend/api/context.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"

namespace tandem {

Awaitable<void> HandleHealth(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleReady(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleVersion(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleLoad(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleIsSleeping(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleKvEventSources(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleMetrics(Exchange& exchange, ApiContext* context);

}  // namespace tandem
