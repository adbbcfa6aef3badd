#pragma once

// A KV connector that keeps the blocks of requests that have ended in host memory, beyond the KV
// cache, and if it is given a folder also in files, and loads them for later requests with the same
// prefix. Least recently loaded ones go first. vLLM's OffloadingConnector with host memory and its
// fs tier; there, blocks are stored while their request runs.
// A load is asynchronous. Blocks of a request that ends stay until they have been copied. Nothing
// is stored of a request that was aborted or has failed: its KV may be wrong. Thread: engine loop,
// both halves; the copier and the files have their own. The caches must outlive it. Failure:
// memory, in Create. A copy does not fail; of files see file_tier.h. Blocks of adapters and
// embeddings do not go to files: another process may have others under the same name.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/status.h"
#include "engine_core/kv_cache/block_pool.h"
#include "engine_core/kv_transfer/block_copier.h"
#include "engine_core/kv_transfer/connector_counts.h"
#include "engine_core/kv_transfer/file_tier.h"
#include "engine_core/kv_transfer/in_process_connector.h"
#include "engine_core/kv_transfer/kv_transfer_config.h"

namespace tandem {

class OffloadingConnector final : public InProcessConnector {
 public:
  // folder: of the files; nullptr: none. reports_events: TakeEvents has some. INVALID_ARGUMENT:
  // host memory or files are too small for one block.
  static StatusOr<std::unique_ptr<OffloadingConnector>> Create(
      const KvTransferConfig& config, const KvCaches& caches,
      std::unique_ptr<BlockFolder> folder = nullptr, bool reports_events = false);

  std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) override;
  wire::CountsByName Sources(const Request& request, int32_t num_local_tokens,
                             const KvMatch& match) const override;
  void OnAllocated(const Request& request, std::span<const BlockId> table, int32_t num_local_tokens,
                   const KvMatch& match) override;
  bool WillFreeBlocks() const override { return num_stores_ > 0; }
  KvEnding OnFinished(const Request& request, wire::RequestStatus status,
                      std::span<const BlockId> table) override;
  void TakeEvents(std::vector<KvCacheEvent>* events) override;
  bool Reset() override;
  wire::RawValue TakeStats() override;

  std::string_view name() const override { return "OffloadingConnector"; }
  void Report(KvTransferReport* report) override;
  bool is_busy() const override {
    return num_loads_ + num_stores_ > 0 || (files_ != nullptr && files_->is_reading());
  }
  void WaitBriefly() override;
  int32_t num_host_blocks() const { return host_.num_blocks() - 1; }
  FileTier* files() { return files_.get(); }  // or null

 private:
  OffloadingConnector(const KvTransferConfig& config, const KvCaches& caches,
                      int32_t num_host_blocks, std::unique_ptr<BlockCopier> copier,
                      std::unique_ptr<BlockFolder> folder, bool reports_events);
  bool IsForFiles(const Request& request) const;
  size_t RunInMemory(std::span<const BlockHash> hashes) const;
  static int64_t NumBlocks(const BlockCopyJob& job) {
    return static_cast<int64_t>(job.host_blocks.size());
  }
  void BeginLoad(const Request& request, std::span<const BlockId> table, int32_t num_local_tokens,
                 const KvMatch& match);
  void ReportStored(const BlockCopyJob& job, std::vector<BlockHash> news);
  void Count(const BlockCopyJob& job);

  const bool prompt_only_;
  const int32_t block_size_;
  const int64_t bytes_per_block_;
  // Of both places; what the pool has lost is in it as if it were the cache's. Without reports
  // empty, and null where it is passed on.
  std::vector<KvCacheEvent> events_;
  std::vector<KvCacheEvent>* const reported_;
  const bool describes_;                                               // them
  std::unordered_map<RequestId, std::vector<BlockStored>> described_;  // of stores under way
  BlockPool host_;  // held: being written or read
  std::unique_ptr<BlockCopier> copier_;
  ConnectorCounts counts_;
  int32_t num_loads_ = 0;  // under way
  int32_t num_stores_ = 0;
  int64_t num_read_ = 0;  // host blocks of them; one that several loads read counts for each
  int64_t num_written_ = 0;
  std::unique_ptr<FileTier> files_;  // uses all of the above
};

}  // namespace tandem
