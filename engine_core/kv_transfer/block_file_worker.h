#pragma once

// Reads, writes and removes blocks of a BlockFolder on threads of its own: some read, one does the
// rest, in the order of Push. Thread: engine loop. The folder must outlive it. Jobs that have not
// begun when this goes are dropped.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/job_thread.h"
#include "common/mailbox.h"
#include "common/status.h"
#include "engine_core/kv_transfer/block_folder.h"

namespace tandem {

struct BlockFileJob {
  enum class Kind { kScan, kRead, kWrite, kRemove };
  Kind kind = Kind::kScan;
  BlockHash hash = {};
  BlockId host_block = {};
  std::span<std::byte> bytes = {};     // of the host block
  std::vector<BlockHash> hashes = {};  // to remove; of a scan that is done: what there is
  Status status = {};                  // of a read or write that is done
  double seconds = 0;                  // that it took
};

class BlockFileWorker {
 public:
  // Begins with a scan. No readers: reads do not end, as on a disk that does not respond.
  BlockFileWorker(const BlockFolder* folder, int num_readers);
  ~BlockFileWorker();

  void Push(BlockFileJob job);
  // Scan, reads and writes that have been done since the last call.
  std::vector<BlockFileJob>& TakeDone();
  // Sleeps until a job is done, or for at most 1 ms.
  void WaitBriefly();

 private:
  void Run(BlockFileJob job);
  void Do(BlockFileJob* job) const;

  const BlockFolder* folder_;
  Mailbox<BlockFileJob> done_;
  std::vector<BlockFileJob> taken_;
  size_t next_reader_ = 0;
  std::vector<std::unique_ptr<JobThread<BlockFileJob>>> readers_;
  JobThread<BlockFileJob> writer_;
};

}  // namespace tandem
