#pragma once

// The tier of an OffloadingConnector below host memory: blocks in files. What host memory takes in
// is also written to a file; a request whose prefix host memory has lost waits until it has been
// read back there, and goes on with as much as came. So a file that is missing or damaged costs its
// own hits and no more, whatever --kv-load-failure-policy says.
// The least recently used files go where the limit of bytes would be passed. At most a quarter of
// host memory is kept for the writer; what else waits for it may be lost before its turn, and is
// not written then. A disk that brings nothing for a second is not waited for, nor asked before it
// has responded. A full disk keeps the number of blocks that it has. Thread: engine loop; files are
// touched by a worker's threads. Host memory, its pool and the counts must outlive it.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/block_pool.h"
#include "engine_core/kv_cache/kv_cache_event.h"
#include "engine_core/kv_transfer/block_file_worker.h"
#include "engine_core/kv_transfer/block_folder.h"
#include "engine_core/kv_transfer/block_lru.h"
#include "engine_core/kv_transfer/connector_counts.h"

namespace tandem {

struct FileTierOptions {
  int64_t max_bytes = INT64_MAX;  // of the files
  int num_readers = 4;
  std::vector<KvCacheEvent>* events = nullptr;  // of files, and of what is read; null: none
};

// Where blocks lie in host memory.
struct HostBlocks {
  BlockPool* pool;
  std::function<std::span<std::byte>(BlockId)> bytes_of;
  int32_t num_blocks = 0;  // of the pool, without the null block
};

class FileTier {
 public:
  FileTier(const FileTierOptions& options, std::unique_ptr<BlockFolder> folder, HostBlocks host,
           ConnectorCounts* counts);

  struct Stored {
    BlockHash hash;
    BlockId host_block;
  };
  // Writes those that have no file yet, now or later. In the order of a prefix. REQUIRES:
  // registered in the pool.
  void Offer(std::span<const Stored> blocks);

  // Whether a request waits for blocks that follow its local prefix. hashes: all that follow.
  bool Awaits(const RequestId& id, std::span<const BlockHash> hashes);
  // How many of these were read from files for the request.
  int64_t NumRead(const RequestId& id, std::span<const BlockHash> hashes) const;
  // The request loads what is in host memory now, or has ended.
  void Forget(const RequestId& id);

  // Takes in what has been read and written.
  void Settle();
  bool is_reading() const { return !reading_.empty(); }
  // While it is: sleeps until something has been done, or for at most 1 ms.
  void WaitBriefly() { worker_.WaitBriefly(); }
  // Removes all files. REQUIRES: host memory is free.
  void Clear();
  // Into the counts.
  void SetGauges();

  bool knows_files() const { return knows_files_; }  // those that were there at the start
  size_t num_files() const { return files_.size(); }
  size_t num_reading() const { return reading_.size(); }
  size_t num_writing() const { return writing_.size(); }

 private:
  // What a request waits for.
  struct Promotion {
    double begin = 0;
    std::vector<BlockId> held = {};  // in host memory, so that they stay there
    std::vector<BlockHash> reads = {};
    bool is_done = false;
  };

  // How many of the first hashes are in host memory, being read, or in files.
  struct Run {
    size_t num_blocks = 0;
    size_t num_reads = 0;
  };
  Run Look(std::span<const BlockHash> hashes);
  bool Begin(const RequestId& id, std::span<const BlockHash> hashes);
  bool StillReads(Promotion* promotion);
  void StartRead(const BlockHash& hash, Promotion* promotion);
  bool IsStalled() const;
  bool CanWrite() const { return writing_.size() < std::min(max_writing_, max_files_); }
  bool HasFile(const BlockHash& hash) const { return files_.Has(hash) || writing_.contains(hash); }
  void StartWrite(const Stored& block);
  void WriteBacklog();
  void CountDropped(int64_t num_blocks);
  void TrimTo(size_t num_files);
  void EraseFile(const BlockHash& hash);
  void EndScan(const BlockFileJob& job);
  void EndRead(const BlockFileJob& job);
  void EndWrite(const BlockFileJob& job);
  void NoteFailure(std::string_view what, const Status& status);

  const HostBlocks host_;
  ConnectorCounts* const counts_;
  std::vector<KvCacheEvent>* const events_;
  size_t max_files_;
  const size_t max_writing_;
  const std::unique_ptr<BlockFolder> folder_;
  BlockLru files_;
  bool knows_files_ = false;
  std::unordered_map<BlockHash, BlockId, BlockLru::Bits> reading_;  // to where
  std::unordered_set<BlockHash, BlockLru::Bits> writing_;
  std::deque<BlockHash>
      backlog_;  // to write when there is room in writing_, if they are still there
  std::unordered_map<RequestId, Promotion> promotions_;
  size_t num_held_ = 0;  // by them
  double read_at_ = 0;   // when the last read ended, or the first one of those under way began
  double seconds_per_mib_ = 0;  // of writes, moving average
  int64_t num_failures_ = 0;
  BlockFileWorker worker_;
};

}  // namespace tandem
