#include "engine_core/kv_transfer/offloading_connector.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "engine_core/kv_transfer/tier_events.h"
#include "engine_core/scheduler/reads_prefix.h"
#include "engine_core/scheduler/request.h"
#include "proto_msgpack/offload_series.h"

namespace tandem {
namespace {

namespace offload = wire::offload;

ConnectorCounts::Info InfoOf(const KvTransferConfig& config, int64_t num_blocks,
                             int64_t bytes_per_block, int64_t block_size) {
  ConnectorCounts::Info info = {
      {"cpu_num_chunks", std::to_string(num_blocks)},
      {"cpu_blocks_per_chunk", "1"},
      {"cpu_kv_cache_size_bytes", std::to_string(num_blocks * bytes_per_block)},
      {"cpu_kv_cache_size_tokens", std::to_string(num_blocks * block_size)}};
  if (!config.file_tier) return info;
  const int64_t max_bytes = config.file_tier->max_bytes;
  info.emplace_back("tier", "fs");
  info.emplace_back("fs_root_dir", config.file_tier->root);
  info.emplace_back("fs_max_bytes", max_bytes > 0 ? std::to_string(max_bytes) : "None");
  return info;
}

}  // namespace

OffloadingConnector::OffloadingConnector(const KvTransferConfig& config, const KvCaches& caches,
                                         int32_t num_host_blocks,
                                         std::unique_ptr<BlockCopier> copier,
                                         std::unique_ptr<BlockFolder> folder, bool reports_events)
    : prompt_only_(config.offload_prompt_only),
      block_size_(caches.front().cache->spec().block_size),
      bytes_per_block_(BlockCopier::BytesPerBlock(caches)),
      reported_(reports_events ? &events_ : nullptr),
      describes_(reports_events && config.self_describing_kv_events),
      host_(num_host_blocks, reported_),
      copier_(std::move(copier)),
      counts_(InfoOf(config, num_host_blocks - 1, bytes_per_block_, block_size_)) {
  if (folder == nullptr) return;
  FileTierOptions options = {.num_readers = config.file_tier->num_readers, .events = reported_};
  if (config.file_tier->max_bytes > 0) options.max_bytes = config.file_tier->max_bytes;
  files_ = std::make_unique<FileTier>(
      options, std::move(folder),
      HostBlocks{.pool = &host_,
                 .bytes_of = [this](BlockId block) { return copier_->BytesOf(block); },
                 .num_blocks = this->num_host_blocks()},
      &counts_);
}

StatusOr<std::unique_ptr<OffloadingConnector>> OffloadingConnector::Create(
    const KvTransferConfig& config, const KvCaches& caches, std::unique_ptr<BlockFolder> folder,
    bool reports_events) {
  constexpr int64_t kMostBlocks = 1 << 30;
  const int64_t bytes_per_block = BlockCopier::BytesPerBlock(caches);
  const int64_t num_blocks = std::min(config.host_bytes / bytes_per_block, kMostBlocks);
  if (num_blocks < 1) {
    return InvalidArgumentError("KV offloading: " + std::to_string(config.host_bytes) +
                                " bytes are less than a KV block of " +
                                std::to_string(bytes_per_block));
  }
  const int64_t max_bytes = folder == nullptr ? 0 : config.file_tier->max_bytes;
  if (max_bytes > 0 && max_bytes < folder->bytes_per_file()) {
    return InvalidArgumentError("KV offloading: " + std::to_string(max_bytes) +
                                " bytes of files are less than that of a KV block, " +
                                std::to_string(folder->bytes_per_file()));
  }
  const auto with_null = static_cast<int32_t>(num_blocks + 1);
  ASSIGN_OR_RETURN(std::unique_ptr<BlockCopier> copier, BlockCopier::Create(caches, with_null));
  return std::unique_ptr<OffloadingConnector>(new OffloadingConnector(
      config, caches, with_null, std::move(copier), std::move(folder), reports_events));
}

std::optional<KvMatch> OffloadingConnector::Match(const Request& request,
                                                  int32_t num_local_tokens) {
  const double begin = SystemClock().Monotonic();
  const auto first = static_cast<size_t>(num_local_tokens / block_size_);
  const auto hashes =
      std::span(request.block_hashes).subspan(std::min(first, request.block_hashes.size()));
  const bool waits =
      IsForFiles(request) && ReadsPrefixCache(request) && files_->Awaits(request.id(), hashes);
  const size_t num_blocks = waits ? 0 : RunInMemory(hashes);
  counts_.Observe(offload::kLookupSyncDelay, SystemClock().Monotonic() - begin);
  if (waits) return std::nullopt;
  return KvMatch{static_cast<int32_t>(num_blocks) * block_size_, true};
}

bool OffloadingConnector::IsForFiles(const Request& request) const {
  const ExtraKeys& keys = request.extra_keys;
  return files_ != nullptr && keys.adapter.id == 0 && keys.embeddings == nullptr;
}

size_t OffloadingConnector::RunInMemory(std::span<const BlockHash> hashes) const {
  const auto is_missing = [&](const BlockHash& hash) { return !host_.Find(hash); };
  return static_cast<size_t>(std::ranges::find_if(hashes, is_missing) - hashes.begin());
}

// What files brought into host memory for this request counts as theirs.
wire::CountsByName OffloadingConnector::Sources(const Request& request, int32_t num_local_tokens,
                                                const KvMatch& match) const {
  const auto hashes = std::span(request.block_hashes)
                          .subspan(static_cast<size_t>(num_local_tokens / block_size_),
                                   static_cast<size_t>(match.num_tokens / block_size_));
  const int64_t num_read = files_ == nullptr ? 0 : files_->NumRead(request.id(), hashes);
  wire::CountsByName sources;
  const int64_t num_disk = num_read * block_size_;
  if (num_disk < match.num_tokens) sources.emplace_back("host", match.num_tokens - num_disk);
  if (num_disk > 0) sources.emplace_back("disk", num_disk);
  return sources;
}

void OffloadingConnector::OnAllocated(const Request& request, std::span<const BlockId> table,
                                      int32_t num_local_tokens, const KvMatch& match) {
  if (match.num_tokens > 0) BeginLoad(request, table, num_local_tokens, match);
  if (files_ != nullptr) files_->Forget(request.id());
}

void OffloadingConnector::BeginLoad(const Request& request, std::span<const BlockId> table,
                                    int32_t num_local_tokens, const KvMatch& match) {
  BlockCopyJob job = {.id = request.id(), .is_load = true};
  const auto first = static_cast<size_t>(num_local_tokens / block_size_);
  const auto end = first + static_cast<size_t>(match.num_tokens / block_size_);
  for (size_t i = first; i < end; ++i) {
    const std::optional<BlockId> host = host_.Find(request.block_hashes[i]);
    CHECK(host.has_value()) << request.id();
    host_.Hold(*host);
    job.host_blocks.push_back(*host);
    job.cache_blocks.push_back(table[i]);
  }
  job.held = job.host_blocks;
  ++num_loads_;
  num_read_ += NumBlocks(job);
  BeginAfterSteps([this, job = std::move(job)] { copier_->Push(job); });
}

KvEnding OffloadingConnector::OnFinished(const Request& request, wire::RequestStatus status,
                                         std::span<const BlockId> table) {
  if (files_ != nullptr) files_->Forget(request.id());
  const bool is_sound = status != wire::RequestStatus::kFinishedAborted &&
                        status != wire::RequestStatus::kFinishedError;
  if (!is_sound || request.status != wire::RequestStatus::kRunning) return {};
  int32_t num_tokens = request.num_computed_tokens;
  if (prompt_only_) num_tokens = std::min(num_tokens, request.num_prompt_tokens);
  const size_t num_blocks = std::min(
      {static_cast<size_t>(num_tokens / block_size_), request.block_hashes.size(), table.size()});
  const auto hashes = std::span(request.block_hashes).first(num_blocks);
  const auto is_missing = [&](const BlockHash& hash) { return !host_.Find(hash); };
  const auto num_missing = std::ranges::count_if(hashes, is_missing);
  if (num_missing > 0) {
    counts_.Observe(offload::kCpuAllocationSize, static_cast<double>(num_missing));
  }
  BlockCopyJob job = {.id = request.id(), .is_for_files = IsForFiles(request)};
  std::vector<FileTier::Stored> found_blocks;
  std::vector<BlockStored> described;
  for (size_t i = 0; i < num_blocks; ++i) {
    // The whole prefix stays together: its begin is of use without its end, not the reverse.
    if (const std::optional<BlockId> found = host_.Find(hashes[i])) {
      host_.Hold(*found);
      job.held.push_back(*found);
      found_blocks.push_back({hashes[i], *found});
      continue;
    }
    if (host_.num_free() == 0) {
      counts_.Add(offload::kAllocationFailure, 1);
      break;
    }
    BlockId host{};
    host_.Allocate({&host, 1});
    job.held.push_back(host);
    job.host_blocks.push_back(host);
    job.cache_blocks.push_back(table[i]);
    job.hashes.push_back(hashes[i]);
    if (describes_) {
      Describe(i, request.token_ids, hashes, request.extra_keys, block_size_, &described);
    }
  }
  // Those that have no file yet get another chance.
  if (job.is_for_files) files_->Offer(found_blocks);
  if (job.host_blocks.empty()) {
    host_.Free(job.held);
    return {};
  }
  ++num_stores_;
  num_written_ += NumBlocks(job);
  if (describes_) described_[job.id] = std::move(described);
  copier_->Push(std::move(job));
  return {.keeps_blocks = true};
}

void OffloadingConnector::WaitBriefly() {
  if (num_loads_ + num_stores_ > 0) return copier_->WaitBriefly();
  if (is_busy()) files_->WaitBriefly();
}

bool OffloadingConnector::Reset() {
  if (files_ != nullptr) files_->Settle();
  if (host_.num_free() != num_host_blocks()) return false;
  // Each block by itself: what is cleared for readers of events is the cache as well.
  std::vector<BlockId> all(static_cast<size_t>(num_host_blocks()));
  host_.Allocate(all);
  host_.Free(all);
  if (files_ != nullptr) files_->Clear();
  return true;
}

void OffloadingConnector::TakeEvents(std::vector<KvCacheEvent>* events) {
  for (KvCacheEvent& event : events_) {
    auto* const removed = std::get_if<BlockRemoved>(&event);
    const bool is_lost = removed != nullptr && removed->medium == KvMedium::kCache;
    if (is_lost && host_.Find(removed->block_hash)) continue;  // another block has it
    if (is_lost) removed->medium = KvMedium::kHostMemory;
    events->push_back(std::move(event));
  }
  events_.clear();
}

void OffloadingConnector::Report(KvTransferReport* report) {
  if (files_ != nullptr) files_->Settle();
  for (const BlockCopyJob& job : copier_->TakeDone()) {
    std::vector<FileTier::Stored> stored;
    std::vector<BlockHash> news;
    for (size_t i = 0; i < job.hashes.size(); ++i) {
      if (!host_.Find(job.hashes[i])) news.push_back(job.hashes[i]);
      host_.Register(job.host_blocks[i], job.hashes[i]);
      stored.push_back({job.hashes[i], job.host_blocks[i]});
    }
    ReportStored(job, std::move(news));
    if (job.is_for_files) files_->Offer(stored);
    host_.Free(job.held);
    --(job.is_load ? num_loads_ : num_stores_);
    (job.is_load ? num_read_ : num_written_) -= NumBlocks(job);
    Count(job);
    (job.is_load ? report->loaded : report->released).push_back(job.id);
  }
}

// What another request has brought meanwhile is described again.
void OffloadingConnector::ReportStored(const BlockCopyJob& job, std::vector<BlockHash> news) {
  const auto found = job.is_load ? described_.end() : described_.find(job.id);
  if (found == described_.end())
    return AddStored(KvMedium::kHostMemory, std::move(news), reported_);
  for (BlockStored& stored : found->second) {
    if (!news.empty()) events_.emplace_back(std::move(stored));
  }
  described_.erase(found);
}

void OffloadingConnector::Count(const BlockCopyJob& job) {
  const auto num_bytes = static_cast<double>(NumBlocks(job) * bytes_per_block_);
  counts_.Add(job.is_load ? offload::kLoadBytes : offload::kStoreBytes, num_bytes);
  counts_.Add(job.is_load ? offload::kLoadTime : offload::kStoreTime, job.seconds);
  counts_.Observe(job.is_load ? offload::kLoadSize : offload::kStoreSize, num_bytes);
}

// A block that several requests load at once is one block.
wire::RawValue OffloadingConnector::TakeStats() {
  const auto share = [&](int64_t num) {
    return std::min(1.0, static_cast<double>(num) / num_host_blocks());
  };
  int64_t num_read = num_read_, num_written = num_written_;
  if (files_ != nullptr) {
    num_read += static_cast<int64_t>(files_->num_writing());
    num_written += static_cast<int64_t>(files_->num_reading());
    files_->SetGauges();
  }
  counts_.Set(offload::kCpuReadUsage, share(num_read));
  counts_.Set(offload::kCpuWriteUsage, share(num_written));
  counts_.Set(offload::kCpuUsage, share(num_read + num_written));
  return counts_.Take();
}

}  // namespace tandem
