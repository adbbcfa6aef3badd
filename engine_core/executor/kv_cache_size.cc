#include "engine_core/executor/kv_cache_size.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "engine_core/executor/cgroup_memory.h"

namespace tandem {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// "MemTotal:  123 kB" → bytes; 0 without such a line.
int64_t MemInfo(const std::string& name) {
  std::ifstream in("/proc/meminfo");
  std::string word;
  int64_t kib = 0;
  while (in >> word) {
    if (word == name && in >> kib) return kib * 1024;
  }
  return 0;
}

struct OwnMemory {
  int64_t mapped_bytes = 0;
  int64_t resident_bytes = 0;
};
OwnMemory ReadOwnMemory() {
  std::ifstream in("/proc/self/statm");
  int64_t mapped_pages = 0, resident_pages = 0;
  in >> mapped_pages >> resident_pages;
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  return {.mapped_bytes = mapped_pages * page_bytes, .resident_bytes = resident_pages * page_bytes};
}

// Where /proc is not mounted: what the kernel returns otherwise, and less of it. Free memory is
// without what files could give back, resident memory is the most that there was.
HostMemory AskKernel() {
  HostMemory memory;
  struct sysinfo host = {};
  if (sysinfo(&host) == 0) {
    memory.total_bytes = static_cast<int64_t>(host.totalram) * host.mem_unit;
    memory.available_bytes = static_cast<int64_t>(host.freeram + host.bufferram) * host.mem_unit;
  }
  rusage own = {};
  if (getrusage(RUSAGE_SELF, &own) == 0) memory.resident_bytes = int64_t{own.ru_maxrss} << 10;
  return memory;
}

int64_t DefaultBytes(int64_t bytes_per_block, const ExecutorLimits& limits,
                     const HostMemory& memory) {
  const int64_t share =
      static_cast<int64_t>(kDefaultUtilization * static_cast<double>(memory.total_bytes)) -
      memory.resident_bytes;
  const double blocks_per_request = MaxHeldBlocks(CacheWithLimits({}, limits));
  const double useful_bytes =
      2.0 * limits.max_num_seqs * blocks_per_request * static_cast<double>(bytes_per_block);
  const int64_t modest = std::min(share, memory.available_bytes / 2);
  return useful_bytes < static_cast<double>(modest) ? static_cast<int64_t>(useful_bytes) : modest;
}

}  // namespace

KvCacheConfig CacheWithLimits(KvCacheConfig config, const ExecutorLimits& limits) {
  config.num_blocks = limits.num_blocks;
  config.block_size = limits.block_size;
  config.max_num_seqs = limits.max_num_seqs;
  config.max_model_len = limits.max_model_len;
  config.max_num_batched_tokens = limits.max_num_batched_tokens;
  config.groups = limits.groups;
  // All drafts of a step in flight may be rejected: the window begins that many tokens earlier.
  config.num_draft_tokens =
      limits.drafts.num_lookahead_tokens + limits.drafts.num_speculative_tokens;
  return config;
}

HostMemory ReadHostMemory() {
  HostMemory memory = {.total_bytes = MemInfo("MemTotal:"),
                       .available_bytes = MemInfo("MemAvailable:"),
                       .resident_bytes = ReadOwnMemory().resident_bytes};
  if (memory.total_bytes == 0) memory = AskKernel();
  const CgroupMemory cgroup = ReadCgroupMemory();
  memory.total_bytes = std::min(memory.total_bytes, cgroup.limit_bytes);
  memory.available_bytes = std::min(memory.available_bytes, cgroup.available_bytes);
  return memory;
}

AddressSpace ReadAddressSpace() {
  AddressSpace space = {.mapped_bytes = ReadOwnMemory().mapped_bytes};
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    space.limit_bytes =
        static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
  }
  return space;
}

HostMemory WithinAddressSpace(HostMemory memory, const AddressSpace& space) {
  if (!space.limit_bytes) return memory;
  const int64_t room = std::max<int64_t>(0, *space.limit_bytes - space.mapped_bytes);
  memory.total_bytes = std::min(memory.total_bytes, memory.resident_bytes + room);
  memory.available_bytes = std::min(memory.available_bytes, room);
  return memory;
}

StatusOr<int32_t> ChooseNumBlocks(const KvCacheWish& wish, int64_t bytes_per_block,
                                  const ExecutorLimits& limits, const HostMemory& memory) {
  // Slots are numbered in 32 bits.
  const int64_t most = std::numeric_limits<int32_t>::max() / limits.block_size;
  int64_t blocks = 0;
  if (wish.num_blocks) {
    blocks = *wish.num_blocks;
  } else if (wish.bytes) {
    blocks = *wish.bytes / bytes_per_block;
  } else if (wish.utilization) {
    blocks = (static_cast<int64_t>(*wish.utilization * static_cast<double>(memory.total_bytes)) -
              memory.resident_bytes) /
             bytes_per_block;
  } else {
    blocks = DefaultBytes(bytes_per_block, limits, memory) / bytes_per_block + 1;
  }
  blocks = std::min(blocks, most);
  // The kernel grants memory that it does not have, and kills the process that touches it.
  if (blocks > memory.total_bytes / bytes_per_block) {
    return ResourceExhaustedError(
        "a KV cache of " + std::to_string(blocks) + " blocks of " +
        std::to_string(bytes_per_block) + " bytes does not fit into the " +
        std::to_string(memory.total_bytes) +
        " bytes of memory here; lower --kv-cache-memory-bytes or --num-gpu-blocks-override");
  }
  if (blocks < 2) {
    return ResourceExhaustedError("no room for a KV cache: a block of " +
                                  std::to_string(limits.block_size) + " tokens takes " +
                                  std::to_string(bytes_per_block) +
                                  " bytes and at least 2 are needed; raise "
                                  "--kv-cache-memory-bytes or --gpu-memory-utilization");
  }
  return static_cast<int32_t>(blocks);
}

int32_t MaxModelLenOf(int64_t num_blocks, const ExecutorLimits& limits) {
  KvCacheConfig config = CacheWithLimits({}, limits);
  if (MaxHeldBlocks(config) <= num_blocks) return limits.max_model_len;
  // The more places, the more blocks.
  int64_t fitting = 0, too_many = CeilDiv(limits.max_model_len, limits.block_size);
  while (fitting + 1 < too_many) {
    const int64_t num_places = (fitting + too_many) / 2;
    config.max_model_len = static_cast<int32_t>(num_places * limits.block_size);
    (MaxHeldBlocks(config) <= num_blocks ? fitting : too_many) = num_places;
  }
  return static_cast<int32_t>(std::min<int64_t>(limits.max_model_len, fitting * limits.block_size));
}

StatusOr<int32_t> ChooseMaxModelLen(bool is_auto, int64_t bytes_per_block,
                                    const ExecutorLimits& limits, const HostMemory& memory) {
  const int32_t most = MaxModelLenOf(memory.total_bytes / bytes_per_block, limits);
  if (most == limits.max_model_len || (is_auto && most >= 2)) return most;
  return ResourceExhaustedError("--max-model-len " + std::to_string(limits.max_model_len) +
                                " (the model's when not given): the " +
                                std::to_string(memory.total_bytes) +
                                " bytes of memory here hold the KV cache of " +
                                std::to_string(most) + " tokens; lower --max-model-len");
}

}  // namespace tandem
