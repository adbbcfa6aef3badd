#include "engine_core/kv_transfer/offloading_connector.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "engine_core/scheduler/request.h"

namespace tandem {

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
      new OffloadingConnector(config, cache->spec().block_size, with_null, std::move(copier)));
}

std::optional<KvMatch> OffloadingConnector::Match(const Request& request,
                                                  int32_t num_local_tokens) {
  const auto first = static_cast<size_t>(num_local_tokens / block_size_);
  size_t end = first;
  while (end < request.block_hashes.size() && host_.Find(request.block_hashes[end])) ++end;
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
  BlockCopyJob job = {.id = request.id()};
  for (size_t i = 0; i < num_blocks; ++i) {
    // The whole prefix stays together: its begin is of use without its end, not the reverse.
    if (const std::optional<BlockId> found = host_.Find(request.block_hashes[i])) {
      host_.Hold(*found);
      job.held.push_back(*found);
      continue;
    }
    if (host_.num_free() == 0) break;
    BlockId host{};
    host_.Allocate({&host, 1});
    job.held.push_back(host);
    job.host_blocks.push_back(host);
    job.cache_blocks.push_back(table[i]);
    job.hashes.push_back(request.block_hashes[i]);
  }
  if (job.host_blocks.empty()) {
    host_.Free(job.held);
    return {};
  }
  ++num_stores_;
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
    (job.is_load ? report->loaded : report->released).push_back(job.id);
  }
}

}  // namespace tandem
