#include "tests/simulation/invariants.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace tandem {
namespace {

// Steps in a row that may yield no token although some request could run: a request that preempts
// itself yields none.
constexpr int32_t kMaxIdleSteps = 3;

Status Wrong(const RequestId& id, const std::string& what) {
  return InternalError("request " + id + ": " + what);
}

}  // namespace

Invariants::Invariants(const EngineCoreOptions* options, EngineCore* engine, SimExecutor* executor,
                       SimConnector* connector, Coverage* coverage)
    : options_(options),
      engine_(engine),
      executor_(executor),
      connector_(connector),
      coverage_(coverage),
      kv_events_(executor->limits().block_size) {}

void Invariants::BeginStep() {
  is_runnable_ = engine_->scheduler().pending_work() == Work::kRequests;
  num_done_before_ = NumDone();
}

Status Invariants::CheckStep() {
  ++num_steps_;
  RETURN_IF_ERROR(CheckProgress());
  RETURN_IF_ERROR(CheckTransfers());
  RETURN_IF_ERROR(CheckAdapters());
  RETURN_IF_ERROR(CheckEncoderCache());
  RETURN_IF_ERROR(CheckBlocks());
  RETURN_IF_ERROR(CheckFreeOrder());
  RETURN_IF_ERROR(CheckKvEvents());
  return CheckQueues();
}

// Tokens, and images that were gone on with or completed.
int64_t Invariants::NumDone() const {
  return executor_->num_tokens() + executor_->num_continued_images() +
         executor_->num_encoded_images();
}

// A request that could run progresses, or waits for the connector.
Status Invariants::CheckProgress() {
  const bool may_wait = connector_ != nullptr && connector_->TakeWasBusy();
  const bool is_idle = is_runnable_ && !may_wait && NumDone() == num_done_before_;
  num_idle_steps_ = is_idle ? num_idle_steps_ + 1 : 0;
  if (num_idle_steps_ <= kMaxIdleSteps) return OkStatus();
  return InternalError("steps without tokens\n" + engine_->DebugString());
}

// A request that is being saved keeps its blocks; one that is being loaded waits with them, or
// runs.
Status Invariants::CheckTransfers() const {
  if (!connector_) return OkStatus();
  const Scheduler& scheduler = engine_->scheduler();
  for (const RequestId& id : connector_->Saving()) {
    const Request* request = scheduler.Find(id);
    if (request == nullptr || request->status != wire::RequestStatus::kRunning) {
      return Wrong(id, "has lost its blocks while they were saved");
    }
  }
  for (const Request* request : scheduler.Holding()) {
    if (request->holds_blocks == request->held.table.empty()) {
      return Wrong(request->id(), "has blocks, or has none, unnoticed");
    }
    if (!request->holds_blocks && request->load != KvLoad::kNone) {
      return Wrong(request->id(), "loads into no blocks");
    }
  }
  for (const Request* request : scheduler.Waiting()) {
    if (request->holds_blocks || !request->held.table.empty() || request->load != KvLoad::kNone) {
      return Wrong(request->id(), "waits with blocks");
    }
  }
  return OkStatus();
}

// Never more adapters in the batch than fit, and their number is right.
Status Invariants::CheckAdapters() {
  const AdapterSlots& adapters = engine_->scheduler().adapters();
  std::set<AdapterId> used;
  for (const Request* request : engine_->scheduler().running()) {
    if (request->adapter_id() != 0) used.insert(request->adapter_id());
  }
  if (used.size() != adapters.num_adapters()) return InternalError("adapters are miscounted");
  const auto max_loras = static_cast<size_t>(options_->scheduler.max_loras);
  if (used.size() > max_loras) return InternalError("too many adapters");
  if (!used.empty() && used.size() == max_loras) ++coverage_->num_adapter_steps;
  return OkStatus();
}

// The scheduler knows which rows of images the worker keeps, and none is held without a request.
Status Invariants::CheckEncoderCache() const {
  const Scheduler& scheduler = engine_->scheduler();
  const EncoderCache& cache = scheduler.encoder_cache();
  if (!cache.has_dropped() && cache.num_kept() != executor_->num_kept_rows()) {
    return InternalError("kept rows of images are miscounted");
  }
  if (cache.num_held() > cache.num_kept() || cache.num_kept() > cache.capacity()) {
    return InternalError("rows of images are miscounted");
  }
  const auto has_images = [](const Request* request) { return request->images != nullptr; };
  const bool may_hold =
      std::ranges::any_of(scheduler.running(), has_images) ||
      (cache.is_under_way() && (std::ranges::any_of(scheduler.Waiting(), has_images) ||
                                std::ranges::any_of(scheduler.Holding(), has_images)));
  return cache.num_held() == 0 || may_hold ? OkStatus()
                                           : InternalError("rows of images are held for nobody");
}

// Free and held blocks are all blocks, each is held as often as tables name it, none is both.
Status Invariants::CheckBlocks() {
  const KvCacheManager& kv_cache = engine_->kv_cache();
  const BlockPool& pool = kv_cache.pool();
  const Scheduler& scheduler = engine_->scheduler();
  std::map<BlockId, int32_t> holders;
  std::set<RequestSlot> slots;
  const auto most_held = static_cast<size_t>(MaxHeldBlocks(kv_cache.config()));
  const auto count = [&](const RequestId& id, std::span<const BlockId> table) {
    std::set<BlockId> own;
    for (BlockId block : table) {
      if (block == kNullBlock) continue;
      if (!own.insert(block).second) return Wrong(id, "holds a block twice");
      ++holders[block];
    }
    if (own.size() > most_held) return Wrong(id, "holds more blocks than it may need");
    return OkStatus();
  };
  for (const Request* request : scheduler.running()) {
    if (!slots.insert(request->slot).second) return InternalError("a slot has two requests");
    RETURN_IF_ERROR(count(request->id(), kv_cache.BlockTable(request->slot)));
  }
  for (const Request* request : scheduler.Holding()) {
    RETURN_IF_ERROR(count(request->id(), request->held.table));
  }
  for (const KvTransfers::Kept& kept : scheduler.transfers().kept()) {
    RETURN_IF_ERROR(count(kept.id, kept.blocks.table));
  }
  const std::vector<BlockId> free_list = pool.FreeList();
  const std::set<BlockId> free(free_list.begin(), free_list.end());
  if (free.size() != free_list.size()) return InternalError("a block is free twice");
  if (static_cast<int32_t>(free.size()) != pool.num_free()) return InternalError("num_free");
  if (static_cast<int32_t>(free.size() + holders.size()) != pool.num_blocks() - 1) {
    return InternalError("blocks are lost: " + std::to_string(free.size()) + " free, " +
                         std::to_string(holders.size()) + " held");
  }
  for (const auto& [block, num_holders] : holders) {
    if (free.contains(block)) return InternalError("a held block is on the free list");
    if (pool.num_holders(block) != num_holders)
      return InternalError("a block's holders are miscounted");
    last_held_[block] = num_steps_;
  }
  // Blocks that are free now and were held after the previous step, or were used since, were freed
  // in this step.
  for (BlockId block : executor_->TakeUsedBlocks()) {
    if (block == kNullBlock) continue;
    int64_t& last_held = last_held_.try_emplace(block, -1).first->second;
    last_held = std::max(last_held, num_steps_ - 1);
  }
  return OkStatus();
}

// Blocks without content are allocated first, then the least recently held content is lost first.
Status Invariants::CheckFreeOrder() {
  const BlockPool& pool = engine_->kv_cache().pool();
  int64_t last_held = -1;
  bool cached = false;
  for (BlockId block : pool.FreeList()) {
    if (!pool.is_registered(block)) {
      if (cached)
        return InternalError("cached content would be lost before an empty block is used");
      continue;
    }
    cached = true;
    if (last_held_[block] < last_held) return InternalError("content is not lost in LRU order");
    last_held = last_held_[block];
  }
  return OkStatus();
}

// The events alone describe what the cache holds.
Status Invariants::CheckKvEvents() {
  if (!options_->kv_cache.enable_events) return OkStatus();
  RETURN_IF_ERROR(kv_events_.Apply(engine_->TakeKvEvents()));
  const BlockPool& pool = engine_->kv_cache().pool();
  if (static_cast<int32_t>(kv_events_.num_hashes()) != pool.num_cached_hashes()) {
    return InternalError("KV events have " + std::to_string(kv_events_.num_hashes()) +
                         " hashes, the cache has " + std::to_string(pool.num_cached_hashes()));
  }
  return OkStatus();
}

// Each request is in one queue; first come, first served, except for those that waited for
// something outside.
Status Invariants::CheckQueues() const {
  const Scheduler& scheduler = engine_->scheduler();
  if (scheduler.num_running() + scheduler.num_waiting() != scheduler.num_requests()) {
    return InternalError("a request is in no queue");
  }
  if (options_->scheduler.policy != SchedulingPolicy::kFcfs) return OkStatus();
  int64_t last = -1;
  for (const auto& queue : {scheduler.running(), scheduler.Waiting()}) {
    for (const Request* request : queue) {
      const bool awaits_images =
          request->images != nullptr && options_->scheduler.image_time_limit.is_on();
      if (request->needs_grammar || request->adapter_id() != 0 || awaits_images ||
          (connector_ && connector_->HasTouched(request->id()))) {
        continue;
      }
      if (request->order < last) return Wrong(request->id(), "has been overtaken");
      last = request->order;
    }
  }
  return OkStatus();
}

Status Invariants::CheckEnd() {
  if (engine_->scheduler().num_requests() != 0) return InternalError("requests are left over");
  if (engine_->kv_cache().pool().Usage() != 0) return InternalError("blocks are left over");
  if (engine_->scheduler().encoder_cache().num_held() != 0) {
    return InternalError("rows of images are left over");
  }
  for (int32_t i = 0; i < executor_->limits().max_num_seqs; ++i) {
    if (executor_->IsSlotInUse(RequestSlot{i})) return InternalError("a slot is left over");
  }
  if (!engine_->ResetPrefixCache(false)) return InternalError("reset refused on an idle engine");
  if (engine_->kv_cache().pool().num_cached_hashes() != 0) return InternalError("hashes are left");
  return OkStatus();
}

}  // namespace tandem
