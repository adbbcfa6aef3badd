#pragma once

// The size of the KV cache: from an executor's limits, and before there is one from the host. Asked
// for in blocks or bytes it is exactly that; else a share of the host's memory, bounded by what the
// limits can use.
// Thread: main. Units: bytes, blocks of block_size tokens (the null block included).

#include <cstdint>
#include <optional>

#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "engine_core/kv_cache/kv_cache_manager.h"

namespace tandem {

// The cache that serves an executor: its sizes are the executor's, the rest is config's.
KvCacheConfig CacheWithLimits(KvCacheConfig config, const ExecutorLimits& limits);

struct HostMemory {
  int64_t total_bytes = 0;      // of the host, or of this process's cgroup when that is less
  int64_t available_bytes = 0;  // without pushing others out
  int64_t resident_bytes = 0;   // of this process
};
HostMemory ReadHostMemory();

constexpr double kDefaultUtilization = 0.92;

// In the order in which they win.
struct KvCacheWish {
  std::optional<int64_t> num_blocks = {};
  std::optional<int64_t> bytes = {};
  // Of total_bytes, less what is resident. Unset: kDefaultUtilization of it, but at most half of
  // what is available and twice what max_num_seqs requests of max_model_len tokens hold (the rest
  // would only grow the prefix cache).
  std::optional<double> utilization = {};
};

// ResourceExhausted when not even two blocks fit, or more are asked for than the host has memory.
StatusOr<int32_t> ChooseNumBlocks(const KvCacheWish& wish, int64_t bytes_per_block,
                                  const ExecutorLimits& limits, const HostMemory& memory);

// The length that one request can have with so many blocks for it: what the limits say, or less.
int32_t MaxModelLenOf(int64_t num_blocks, const ExecutorLimits& limits);

// The length that one request can have at all, before anything is allocated for it. When the host
// cannot hold it: what it can hold if is_auto, else ResourceExhausted.
StatusOr<int32_t> ChooseMaxModelLen(bool is_auto, int64_t bytes_per_block,
                                    const ExecutorLimits& limits, const HostMemory& memory);

}  // namespace tandem
