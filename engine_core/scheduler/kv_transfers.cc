#include "engine_core/scheduler/kv_transfers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

template <class Range, class Value>
bool Contains(const Range& range, const Value& value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}

// The index of the table's first block among `failed`; the table's size: there is none.
int32_t FirstOf(std::span<const BlockId> failed, std::span<const BlockId> table) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](BlockId block) { return Contains(failed, block); });
  return static_cast<int32_t>(found - table.begin());
}

// Tokens that the request had when the step began; if it is not part of it, that it has.
int32_t NumComputedBefore(const Step& step, const Request& request) {
  if (request.num_stale_steps > 0) return request.num_computed_tokens;
  const auto found = std::find(step.requests.begin(), step.requests.end(), &request);
  if (found == step.requests.end()) return request.num_computed_tokens;
  return step.output.requests[static_cast<size_t>(found - step.requests.begin())]
      .num_computed_tokens;
}

}  // namespace

std::optional<KvMatch> KvTransfers::Match(const Request& request, int32_t num_local_tokens) const {
  if (connector_ == nullptr) return KvMatch{};
  const std::optional<KvMatch> match = connector_->Match(request, num_local_tokens);
  if (match) {
    // An asynchronous load may bring all tokens; the last one is computed again.
    const int32_t num_at_most = request.num_tokens() - (match->is_async ? 0 : 1) - num_local_tokens;
    CHECK(match->num_tokens >= 0 && match->num_tokens <= std::max(num_at_most, 0))
        << match->num_tokens << " tokens for " << request.id();
  }
  return match;
}

void KvTransfers::Begin(Request* request, std::span<const BlockId> table, int32_t num_local_tokens,
                        const KvMatch& match) {
  if (connector_ == nullptr) return;
  connector_->OnAllocated(*request, table, num_local_tokens, match);
  if (match.num_tokens == 0) return;
  if (match.is_async) {
    request->load = KvLoad::kRunning;
    request->fetch = KvFetch::kInProgress;
    loading_.push_back(request);
  } else if (holds_back_) {
    request->holds_back_hashes = true;
    held_back_.push_back(request);
  }
}

void KvTransfers::Release(Request* request) {
  if (!std::exchange(request->holds_back_hashes, false)) return;
  std::erase(held_back_, request);
}

bool KvTransfers::CanRelease(const Request& request) const {
  return connector_ == nullptr || (!request.holds_back_hashes && !connector_->WillFreeBlocks());
}

std::span<const BlockId> KvTransfers::ComputedBlocks(const Request& request,
                                                     std::span<const BlockId> table) const {
  const int32_t block_size = kv_cache_->config().block_size;
  const int32_t num_computed = request.status == wire::RequestStatus::kRunning
                                   ? request.num_computed_tokens
                                   : request.known.total();
  const auto num_blocks = static_cast<size_t>((num_computed + block_size - 1) / block_size);
  return table.first(std::min(num_blocks, table.size()));
}

wire::RawValue KvTransfers::FreeOrKeep(Request* request, wire::RequestStatus status) {
  const bool is_running = request->status == wire::RequestStatus::kRunning;
  if (connector_ == nullptr) {
    if (is_running) kv_cache_->Free(request->slot);
    return {};
  }
  HeldBlocks blocks = is_running ? kv_cache_->Detach(request->slot) : std::move(request->held);
  KvEnding ending =
      connector_->OnFinished(*request, status, ComputedBlocks(*request, blocks.table));
  const bool loads = std::erase(loading_, request) > 0;
  const bool loads_with_step = std::erase(held_back_, request) > 0;
  const bool is_read = ending.keeps_blocks && !loads && !blocks.table.empty();
  if (loads || loads_with_step || is_read) {
    kept_.push_back({request->id(), std::move(blocks), loads || loads_with_step, is_read,
                     loads_with_step ? request : nullptr, is_read && ending.holds_output,
                     is_read && ending.is_promised});
  } else {
    kv_cache_->Free(std::move(blocks));
  }
  request->load = KvLoad::kNone;
  request->holds_back_hashes = false;
  return std::move(ending.params);
}

std::span<const FailedLoad> KvTransfers::NoteFailures(const Step& step,
                                                      std::span<Request* const> running,
                                                      const KvTransferReport& report) {
  failed_.clear();
  if (report.failed_blocks.empty() && report.failed_loads.empty()) return failed_;
  NoteLoading(report);
  NoteRunning(step, running, report);
  std::sort(failed_.begin(), failed_.end(), [](const FailedLoad& a, const FailedLoad& b) {
    return std::tuple(a.request->wire.arrival_time, a.request->order) <
           std::tuple(b.request->wire.arrival_time, b.request->order);
  });
  return failed_;
}

void KvTransfers::NoteLoading(const KvTransferReport& report) {
  const int32_t block_size = kv_cache_->config().block_size;
  for (Request* request : loading_) {
    const bool is_whole = Contains(report.failed_loads, request->id());
    const int32_t num_valid =
        is_whole ? 0 : FirstOf(report.failed_blocks, request->held.table) * block_size;
    if (num_valid < request->known.total()) failed_.push_back({request, num_valid, is_whole});
  }
}

// Asynchronously: nobody has read it.
bool KvTransfers::IsLoading(BlockId block) const {
  const auto loads_it = [&](const Request* request) {
    return Contains(request->held.table, block);
  };
  const auto keeps_it = [&](const Kept& kept) {
    return kept.is_loading && kept.loads_with_step == nullptr && Contains(kept.blocks.table, block);
  };
  return std::ranges::any_of(loading_, loads_it) || std::ranges::any_of(kept_, keeps_it);
}

// Every holder of a bad block: those that share it have read it as well.
void KvTransfers::NoteRunning(const Step& step, std::span<Request* const> running,
                              const KvTransferReport& report) {
  const int32_t block_size = kv_cache_->config().block_size;
  for (Request* request : running) {
    if (request->finished()) continue;
    const std::span<const BlockId> table = kv_cache_->BlockTable(request->slot);
    const int32_t num_valid = FirstOf(report.failed_blocks, table) * block_size;
    if (num_valid >= NumComputedBefore(step, *request)) continue;
    failed_.push_back({.request = request, .num_valid_tokens = num_valid});
  }
  const auto is_loading = [this](BlockId block) { return IsLoading(block); };
  if (std::ranges::all_of(report.failed_blocks, is_loading)) return;
  // What has left the batch since may have been computed on top of them.
  for (const Request* request : step.requests) {
    if (request->status != wire::RequestStatus::kRunning) kv_cache_->Forget(request->block_hashes);
  }
}

// Of the steps that name a request since its admission, the first one did the load.
void KvTransfers::EndHeldBack(const Step& step) {
  const auto has_run = [&](const Request* request) {
    return request->num_stale_steps == 0 && Contains(step.requests, request);
  };
  for (Request* request : held_back_) {
    if (!has_run(request)) continue;
    request->holds_back_hashes = false;
    kv_cache_->RegisterUpTo(request->slot, request->sequence(), request->num_computed_tokens);
  }
  std::erase_if(held_back_, has_run);
  for (Kept& kept : kept_) {
    if (kept.loads_with_step == nullptr || !has_run(kept.loads_with_step)) continue;
    kept.loads_with_step = nullptr;
    kept.is_loading = false;
  }
  FreeUnneeded();
}

void KvTransfers::Settle(const KvTransferReport& report) {
  for (const RequestId& id : report.loaded) EndLoad(id);
  for (const RequestId& id : report.failed_loads) EndLoad(id);
  for (const RequestId& id : report.not_stored) {
    const auto kept = FindKept(id);
    if (kept != kept_.end() && kept->output) kept->output->record.kv_transfer_params.reset();
  }
  for (const RequestId& id : report.released) {
    const auto kept = FindKept(id);
    if (kept == kept_.end()) continue;
    kept->is_read = false;
    FreeUnneeded();
  }
}

void KvTransfers::EndLoad(const RequestId& id) {
  const auto loading = std::find_if(loading_.begin(), loading_.end(),
                                    [&](const Request* request) { return request->id() == id; });
  if (loading != loading_.end()) {
    (*loading)->load = KvLoad::kEnded;
    (*loading)->fetch = KvFetch::kCompleted;
    loading_.erase(loading);
    return;
  }
  const auto kept = FindKept(id);
  if (kept == kept_.end()) return;
  kept->is_loading = false;
  FreeUnneeded();
}

std::vector<KvTransfers::Kept>::iterator KvTransfers::FindKept(const RequestId& id) {
  return std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.id == id; });
}

const KvTransfers::Kept* KvTransfers::Find(const RequestId& id) const {
  const auto kept = std::ranges::find(kept_, id, &Kept::id);
  return kept == kept_.end() ? nullptr : &*kept;
}

bool KvTransfers::Keeps(const RequestId& id) const { return Find(id) != nullptr; }

int64_t KvTransfers::num_promised() const {
  return std::ranges::count_if(kept_, &Kept::is_promised);
}

void KvTransfers::GiveUp(const RequestId& id) {
  const Kept* kept = Find(id);
  if (kept != nullptr && kept->is_read) connector_->OnGivenUp(id);
}

bool KvTransfers::WantsOutput(const RequestId& id) const {
  const Kept* kept = Find(id);
  return kept != nullptr && kept->wants_output;
}

void KvTransfers::HoldOutput(HeldOutput output) {
  const auto kept = FindKept(output.record.request_id);
  CHECK(kept != kept_.end()) << output.record.request_id;
  kept->output = std::make_unique<HeldOutput>(std::move(output));
}

bool KvTransfers::HoldsOutput(const RequestId& id) const {
  const Kept* kept = Find(id);
  return kept != nullptr && kept->output != nullptr;
}

bool KvTransfers::holds_outputs() const {
  return std::ranges::any_of(kept_, [](const Kept& kept) { return kept.output != nullptr; });
}

std::vector<HeldOutput> KvTransfers::DropOutputs(
    const std::function<bool(const HeldOutput&)>& predicate) {
  std::vector<HeldOutput> dropped;
  for (Kept& kept : kept_) {
    if (kept.output == nullptr || !predicate(*kept.output)) continue;
    dropped.push_back(std::move(*kept.output));
    kept.output.reset();
  }
  return dropped;
}

std::vector<HeldOutput> KvTransfers::TakeOutputs(bool all) {
  if (all) {
    for (HeldOutput& held : DropOutputs([](const HeldOutput&) { return true; })) {
      outputs_.push_back(std::move(held));
    }
  }
  return std::exchange(outputs_, {});
}

void KvTransfers::FreeUnneeded() {
  for (Kept& kept : kept_) {
    if (kept.is_needed()) continue;
    kv_cache_->Free(std::move(kept.blocks));
    if (kept.output != nullptr) outputs_.push_back(std::move(*kept.output));
  }
  std::erase_if(kept_, [](const Kept& kept) { return !kept.is_needed(); });
}

}  // namespace tandem
