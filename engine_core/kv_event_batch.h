#pragma once

// KV events on their way from the cache to the publisher: the flag --kv-events-config, and the
// conversion to the wire's records.
// Thread: pure functions.
// Failure: INVALID_ARGUMENT names the key of the configuration, its value and what is allowed.

#include <string>
#include <vector>

#include "common/status.h"
#include "engine_core/kv_cache/kv_cache_event.h"
#include "engine_core/kv_cache/kv_cache_manager.h"
#include "proto_msgpack/kv_events.h"

namespace tandem {

// A JSON object with vLLM's keys. Empty text: the defaults, which publish nothing.
StatusOr<wire::KvEventsConfig> ParseKvEventsConfig(const std::string& text);

// VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES (or TANDEM_…): 0 sends whole hashes.
wire::KvHashForm KvHashFormFromEnvironment();

wire::KvEventBatch ToKvEventBatch(std::vector<KvCacheEvent> events, const KvCacheConfig& cache,
                                  double unix_time);

}  // namespace tandem
