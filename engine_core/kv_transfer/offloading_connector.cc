#include "engine_core/kv_transfer/offloading_connector.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "engine_core/scheduler/request.h"
#include "proto_msgpack/offload_series.h"

namespace tandem {
namespace {

namespace offload = wire::offload;

ConnectorCounts::Info InfoOf(int64_t num_blocks, int64_t bytes_per_block, int64_t block_size) {
  return {{"cpu_num_chunks", std::to_string(num_blocks)},
          {"cpu_blocks_per_chunk", "1"},
          {"cpu_kv_cache_size_bytes", std::to_string(num_blocks * bytes_per_block)},
          {"cpu_kv_cache_size_tokens", std::to_string(num_blocks * block_size)}};
}

}  // namespace

OffloadingConnector::OffloadingConnector(const KvTransferConfig& config, const KvCache& cache,
                                         int32_t num_host_blocks,
                                         std::unique_ptr<BlockCopier> copier)
    : prompt_only_(config.offload_prompt_only),
      block_size_(cache.spec().block_size),
      bytes_per_block_(BlockCopier::BytesPerBlock(cache)),
      host_(num_host_blocks, nullptr),
      copier_(std::move(copier)),
      counts_(InfoOf(num_host_blocks - 1, bytes_per_block_, block_size_)) {}

StatusOr<std::unique_ptr<OffloadingConnector>> OffloadingConnector::Create(
    const KvTransferConfig& config, const KvCache* cache) {
  constexpr int64_t kMostBlocks = 1 << 30;
  const int64_t num_blocks =
      std::min(config.host_bytes / BlockCopier::BytesPerBlock(*cache), kMostBlocks);
  if (num_blocks < 1) {
    return InvalidArgumentError("KV offloading: " + std::to_string(config.host_bytes) +
                                " bytes are less than a KV block of " +
                                std::to_string(BlockCopier::BytesPerBlock(*cache)));
  }
  const auto with_null = static_cast<int32_t>(num_blocks + 1);
  ASSIGN_OR_RETURN(std::unique_ptr<BlockCopier> copier, BlockCopier::Create(cache, with_null));
  return std::unique_ptr<OffloadingConnector>(
      new OffloadingConnector(config, *cache, with_null, std::move(copier)));
}

std::optional<KvMatch> OffloadingConnector::Match(const Request& request,
                                                  int32_t num_local_tokens) {
  const double begin = SystemClock().Monotonic();
  const auto first = static_cast<size_t>(num_local_tokens / block_size_);
  size_t end = first;
  while (end < request.block_hashes.size() && host_.Find(request.block_hashes[end])) ++end;
  counts_.Observe(offload::kLookupSyncDelay, SystemClock().Monotonic() - begin);
  return KvMatch{static_cast<int32_t>(end - first) * block_size_, true};
}

void OffloadingConnector::OnAllocated(const Request& request, std::span<const BlockId> table,
                                      int32_t num_local_tokens, const KvMatch& match) {
  if (match.num_tokens == 0) return;
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
  BlockCopyJob job = {.id = request.id()};
  for (size_t i = 0; i < num_blocks; ++i) {
    // The whole prefix stays together: its begin is of use without its end, not the reverse.
    if (const std::optional<BlockId> found = host_.Find(hashes[i])) {
      host_.Hold(*found);
      job.held.push_back(*found);
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
  }
  if (job.host_blocks.empty()) {
    host_.Free(job.held);
    return {};
  }
  ++num_stores_;
  num_written_ += NumBlocks(job);
  copier_->Push(std::move(job));
  return {.keeps_blocks = true};
}

void OffloadingConnector::WaitBriefly() {
  if (is_busy()) copier_->WaitBriefly();
}

bool OffloadingConnector::Reset() {
  if (host_.num_free() != num_host_blocks()) return false;
  host_.Clear();
  return true;
}

void OffloadingConnector::Report(KvTransferReport* report) {
  for (const BlockCopyJob& job : copier_->TakeDone()) {
    for (size_t i = 0; i < job.hashes.size(); ++i) {
      host_.Register(job.host_blocks[i], job.hashes[i]);
    }
    host_.Free(job.held);
    --(job.is_load ? num_loads_ : num_stores_);
    (job.is_load ? num_read_ : num_written_) -= NumBlocks(job);
    Count(job);
    (job.is_load ? report->loaded : report->released).push_back(job.id);
  }
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
  counts_.Set(offload::kCpuReadUsage, share(num_read_));
  counts_.Set(offload::kCpuWriteUsage, share(num_written_));
  counts_.Set(offload::kCpuUsage, share(num_read_ + num_written_));
  return counts_.Take();
}

}  // namespace tandem
