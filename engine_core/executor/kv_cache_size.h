#pragma once

// The size of the KV cache: of an executor from its limits, before there is one from the host's
// memory. A size in blocks or bytes is taken exactly; otherwise it is a share of the memory, at
// most what the limits can use. Thread: main. Units: bytes, blocks of block_size tokens (the null
// block included).

#include <cstdint>
#include <optional>

#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "engine_core/kv_cache/kv_cache_manager.h"

namespace tandem {

// The cache that serves an executor: its sizes are the executor's, the rest is config's.
KvCacheConfig CacheWithLimits(KvCacheConfig config, const ExecutorLimits& limits);

struct HostMemory {
  int64_t total_bytes = 0;      // of the host, or this process's cgroup limit when that is less
  int64_t available_bytes = 0;  // without evicting memory of others
  int64_t resident_bytes = 0;   // of this process
};
HostMemory ReadHostMemory();

// RLIMIT_AS (`ulimit -v`), which counts what is mapped, resident or not.
struct AddressSpace {
  std::optional<int64_t> limit_bytes = {};
  int64_t mapped_bytes = 0;
};
AddressSpace ReadAddressSpace();
// The memory of which no more is used than the address space has room for.
HostMemory WithinAddressSpace(HostMemory memory, const AddressSpace& space);

constexpr double kDefaultUtilization = 0.92;

// The first that is set decides.
struct KvCacheWish {
  std::optional<int64_t> num_blocks = {};
  std::optional<int64_t> bytes = {};
  // Share of total_bytes, less what is resident. Unset: kDefaultUtilization, but at most half of
  // what is available and twice what max_num_seqs requests of max_model_len tokens hold (more would
  // only grow the prefix cache).
  std::optional<double> utilization = {};
};

// ResourceExhausted when fewer than two blocks fit, or the wish exceeds the host's memory.
StatusOr<int32_t> ChooseNumBlocks(const KvCacheWish& wish, int64_t bytes_per_block,
                                  const ExecutorLimits& limits, const HostMemory& memory);

// The length that one request can have when all num_blocks are its own; at most the limits'.
int32_t MaxModelLenOf(int64_t num_blocks, const ExecutorLimits& limits);

// The length that one request can have, before anything is allocated. When the host cannot hold the
// limits' length: the length it can hold if is_auto, else ResourceExhausted.
StatusOr<int32_t> ChooseMaxModelLen(bool is_auto, int64_t bytes_per_block,
                                    const ExecutorLimits& limits, const HostMemory& memory);

}  // namespace tandem
