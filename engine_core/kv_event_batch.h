#pragma once

// KV events between the engine's loop and the publisher: the flag --kv-events-config, and the
// cache's events as they cross.
// Thread: pure functions.
// Failure: INVALID_ARGUMENT names the key of the configuration, its value and what is allowed.

#include <string>
#include <vector>

#include "common/status.h"
#include "engine_core/kv_cache/kv_cache_event.h"
#include "engine_core/kv_cache/kv_cache_manager.h"
#include "proto_msgpack/kv_events.h"

namespace tandem {

// A JSON object with vLLM's keys; empty text: all at their defaults, which is off.
StatusOr<wire::KvEventsConfig> ParseKvEventsConfig(const std::string& text);

// VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES (or TANDEM_…): 0 sends whole hashes.
wire::KvHashForm KvHashFormFromEnvironment();

wire::KvEventBatch ToKvEventBatch(std::vector<KvCacheEvent> events, const KvCacheConfig& cache,
                                  double unix_time);

}  // namespace tandem
