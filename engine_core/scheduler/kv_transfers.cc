#include "engine_core/scheduler/kv_transfers.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

template <class Range, class Value>
bool Contains(const Range& range, const Value& value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}

}  // namespace

std::optional<KvMatch> KvTransfers::Match(const Request& request, int32_t num_local_tokens) const {
  if (connector_ == nullptr || request.load_failed) return KvMatch{};
  const std::optional<KvMatch> match = connector_->Match(request, num_local_tokens);
  if (match) {
    // An asynchronous load may bring all tokens; the last one is computed again.
    const int32_t num_at_most = request.num_tokens() - (match->is_async ? 0 : 1) - num_local_tokens;
    CHECK(match->num_tokens >= 0 && match->num_tokens <= num_at_most)
        << match->num_tokens << " tokens for " << request.id();
  }
  return match;
}

void KvTransfers::Begin(Request* request, std::span<const BlockId> table, const KnownTokens& known,
                        bool is_async) {
  if (connector_ == nullptr) return;
  connector_->OnAllocated(*request, table, known.num_local, {known.num_remote, is_async});
  if (known.num_remote == 0) return;
  request->loads_kv = true;
  loads_.push_back({.id = request->id(),
                    .request = request,
                    .num_tokens = known.total(),
                    .num_local_tokens = known.num_local,
                    .is_async = is_async});
}

bool KvTransfers::CanRelease(const Request& request) const {
  return connector_ == nullptr || (!request.loads_kv && connector_->CanRelease(request));
}

void KvTransfers::FreeOrKeep(Request* request) {
  const bool is_running = request->status == wire::RequestStatus::kRunning;
  if (connector_ == nullptr) {
    if (is_running) kv_cache_->Free(request->slot);
    return;
  }
  HeldBlocks blocks = is_running ? kv_cache_->Detach(request->slot) : std::move(request->held);
  const bool is_read = connector_->OnFinished(*request, blocks.table) && !blocks.table.empty();
  if (request->loads_kv) {
    const auto load = std::find_if(loads_.begin(), loads_.end(),
                                   [=](const Load& l) { return l.request == request; });
    load->has_finished = true;
    if (load->is_async) load->request = nullptr;  // no step names it, so it may be deleted soon
  }
  kept_.push_back({request->id(), std::move(blocks), request->loads_kv, is_read});
  FreeKept();
}

std::span<const EndedLoad> KvTransfers::Settle(const Step& step, const KvTransferReport& report) {
  ended_.clear();
  if (connector_ == nullptr) return ended_;
  for (const BlockId block : report.failed_blocks) NoteFailure(block);
  const auto has_ended = [&](const Load& load) { return HasEnded(load, step, report); };
  for (const Load& load : loads_) {
    if (has_ended(load)) End(load);
  }
  std::erase_if(loads_, has_ended);
  for (Kept& kept : kept_) kept.is_read = kept.is_read && !Contains(report.released, kept.id);
  FreeKept();
  return ended_;
}

bool KvTransfers::Keeps(const RequestId& id) const {
  return std::any_of(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.id == id; });
}

std::span<const BlockId> KvTransfers::TableOf(const Load& load) const {
  return load.is_async ? std::span<const BlockId>(load.request->held.table)
                       : kv_cache_->BlockTable(load.request->slot);
}

void KvTransfers::NoteFailure(BlockId block) {
  for (Load& load : loads_) {
    if (load.has_finished) continue;
    const std::span<const BlockId> table = TableOf(load);
    const auto found = std::find(table.begin(), table.end(), block);
    if (found == table.end()) continue;
    const auto block_idx = static_cast<int32_t>(found - table.begin());
    load.first_failed_block =
        load.first_failed_block < 0 ? block_idx : std::min(load.first_failed_block, block_idx);
  }
}

// Of the steps that name a request since its admission, the first one did the load.
bool KvTransfers::HasEnded(const Load& load, const Step& step,
                           const KvTransferReport& report) const {
  if (load.is_async) return Contains(report.loaded, load.id);
  return load.request->num_stale_steps == 0 && Contains(step.requests, load.request);
}

void KvTransfers::End(const Load& load) {
  if (load.has_finished) {
    const auto kept =
        std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.id == load.id; });
    kept->is_loading = false;
    return;
  }
  const bool failed = load.first_failed_block >= 0;
  const int32_t num_before_failure =
      std::clamp(load.first_failed_block * kv_cache_->config().block_size, load.num_local_tokens,
                 load.num_tokens);
  load.request->loads_kv = false;
  load.request->load_failed = load.request->load_failed || failed;
  ended_.push_back({.request = load.request,
                    .num_loaded_tokens = failed ? num_before_failure : load.num_tokens,
                    .is_async = load.is_async,
                    .failed = failed});
}

void KvTransfers::FreeKept() {
  for (Kept& kept : kept_) {
    if (!kept.is_needed()) kv_cache_->Free(std::move(kept.blocks));
  }
  std::erase_if(kept_, [](const Kept& kept) { return !kept.is_needed(); });
}

}  // namespace tandem
