#pragma once

// Copies whole KV blocks between an engine's cache and a second place in host memory, on a thread
// of its own. The bytes of a block are those of all layers' K and V, as the backend lays them out,
// rank by rank.
// Threads: the engine loop calls; one copies. Ownership: the second place is the copier's; the
// cache must outlive it. Failure, before the first copy: memory; UNIMPLEMENTED for a cache whose
// blocks have states.
// Jobs that have not begun when this goes are dropped.
// REQUIRES: nothing writes to the blocks of a job, and nothing reads those that it fills, from Push
// until it is done. The cache is in host memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/job_thread.h"
#include "common/mailbox.h"
#include "common/status.h"
#include "engine_core/kv_cache/block_hash.h"
#include "engine_core/kv_remote/block_parts.h"
#include "kernels/kv_caches.h"
#include "kernels/tensor.h"

namespace tandem {

struct BlockCopyJob {
  RequestId id;
  bool is_load = false;  // into the cache
  std::vector<BlockId> cache_blocks = {};
  std::vector<BlockId> host_blocks = {};  // parallel, from 1
  std::vector<BlockHash> hashes = {};     // of a store: parallel
  std::vector<BlockId> held = {};         // host blocks to free when it is done
  bool is_for_files = false;              // of a store: what it brings may go to files
  double seconds = 0;                     // of one that is done: how long the copy took
};

class BlockCopier {
 public:
  static int64_t BytesPerBlock(const KvCaches& caches);
  // num_host_blocks: with the null block 0, which takes no memory.
  static StatusOr<std::unique_ptr<BlockCopier>> Create(const KvCaches& caches,
                                                       int32_t num_host_blocks);

  void Push(BlockCopyJob job);
  // The bytes of a host block. REQUIRES for reading them: no job writes to it; for writing: no job
  // has it.
  std::span<std::byte> BytesOf(BlockId host_block) const;
  // Jobs that have been done since the last call, in the order of Push.
  const std::vector<BlockCopyJob>& TakeDone();
  // Sleeps until some job is done, or for at most 1 ms.
  void WaitBriefly();

 private:
  BlockCopier(BlockParts parts, int64_t bytes_per_block, OwnedTensor memory);
  void Run(BlockCopyJob job);
  void Copy(const BlockCopyJob& job) const;

  const BlockParts parts_;
  const int64_t bytes_per_block_;
  OwnedTensor memory_;  // of each host block its parts, one after another
  Mailbox<BlockCopyJob> done_;
  std::vector<BlockCopyJob> taken_;
  JobThread<BlockCopyJob> thread_;
};

}  // namespace tandem
