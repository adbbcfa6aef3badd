#pragma once

// What a KV connector was asked for and could load: SchedulerStats::connector_prefix_cache_stats of
// an engine that has one. vLLM 0.33's form.
// Thread: pure functions. Failure: malformed bytes are INVALID_ARGUMENT.

#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

RawValue Packed(const PrefixCacheStats& stats);
StatusOr<PrefixCacheStats> UnpackPrefixCacheStats(const RawValue& value);

}  // namespace tandem::wire
