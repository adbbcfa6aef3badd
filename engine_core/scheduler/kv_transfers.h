#pragma once

// The transfers of a KvConnector as the scheduler tracks them: which requests load, and which
// blocks are kept after their request has ended. Without a connector every call does nothing.
// Thread: engine loop. Owns: kept blocks. The connector and the cache must outlive it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/kv_connector.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/step.h"

namespace tandem {

// A request of which some load has failed.
struct FailedLoad {
  Request* request = nullptr;    // loading or running
  int32_t num_valid_tokens = 0;  // from the start, its local prefix included
  bool is_whole = false;         // nothing of it is known to be valid
};

// The last output of a request that ended.
struct HeldOutput {
  int32_t client_index = 0;
  wire::EngineCoreOutput record;
};

class KvTransfers {
 public:
  // connector: nullptr if there is none. holds_back: what is loaded with a step is not to be found
  // before the step's result is known, because further steps may be scheduled until then.
  KvTransfers(KvConnector* connector, KvCacheManager* kv_cache, bool holds_back)
      : connector_(connector), kv_cache_(kv_cache), holds_back_(holds_back) {}

  bool has_connector() const { return connector_ != nullptr; }

  void Add(Request* request) {
    if (connector_ == nullptr || !connector_->OnAdded(*request)) return;
    request->fetch = KvFetch::kWaitingToStart;
  }
  void OnRefused(const RequestId& id, const wire::RawValue& extra_args) {
    if (connector_ != nullptr && !extra_args.is_nil()) connector_->OnRefused(id, extra_args);
  }
  // What can be loaded after a local prefix; nullopt: ask later.
  std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) const;
  // Whether blocks that this load fills must not be found yet.
  bool HoldsBack(const KvMatch& match) const {
    return match.num_tokens > 0 && (match.is_async || holds_back_);
  }
  // Where the tokens of the match lie; empty for an empty one. Before Begin.
  wire::CountsByName Sources(const Request& request, int32_t num_local_tokens,
                             const KvMatch& match) const {
    if (match.num_tokens == 0) return {};
    return connector_->Sources(request, num_local_tokens, match);
  }
  // The request has its blocks: begins the load of the match, which may be empty.
  void Begin(Request* request, std::span<const BlockId> table, int32_t num_local_tokens,
             const KvMatch& match);
  // Whether a running request may lose its blocks.
  bool CanRelease(const Request& request) const;
  // It loses them.
  void Release(Request* request);
  // Frees the blocks of a request that ends with this status, or keeps them as long as a transfer
  // needs them. Returns the output's kv_transfer_params.
  wire::RawValue FreeOrKeep(Request* request, wire::RequestStatus status);

  // Whether the last output of a request that has ended is to be held, and holds it. While it is,
  // the client does not learn that the request has ended.
  bool WantsOutput(const RequestId& id) const;
  void HoldOutput(HeldOutput output);
  bool HoldsOutput(const RequestId& id) const;
  bool holds_outputs() const;
  // Drops those for which it holds; what was dropped.
  std::vector<HeldOutput> DropOutputs(const std::function<bool(const HeldOutput&)>& predicate);
  // Those that need be held no longer; all: every one.
  std::vector<HeldOutput> TakeOutputs(bool all = false);

  // A step has run: what was loaded with it can be found.
  void EndHeldBack(const Step& step);
  // Then the loads that the report, which came with the result of this step, names as failed, in
  // the order of their arrival; valid until the next call.
  std::span<const FailedLoad> NoteFailures(const Step& step, std::span<Request* const> running,
                                           const KvTransferReport& report);
  // Then, with the step's tokens taken in: ends loads and frees blocks.
  void Settle(const KvTransferReport& report);

  // Whether blocks are kept under this id: it cannot name another request yet.
  bool Keeps(const RequestId& id) const;
  bool keeps_any() const { return !kept_.empty(); }
  // Requests whose blocks other processes wait for.
  int64_t num_promised() const;
  // Nobody is going to read the blocks that are kept under this id.
  void GiveUp(const RequestId& id);
  wire::RawValue TakeStats() const {
    return connector_ == nullptr ? wire::RawValue() : connector_->TakeStats();
  }
  bool Reset() { return connector_ == nullptr || connector_->Reset(); }

  struct Kept {
    RequestId id;
    HeldBlocks blocks;
    bool is_loading = false;
    bool is_read = false;
    const Request* loads_with_step = nullptr;  // alive while that step is in flight
    bool wants_output = false;
    bool is_promised = false;
    std::unique_ptr<HeldOutput> output = {};
    bool is_needed() const { return is_loading || is_read; }
  };
  const std::vector<Kept>& kept() const { return kept_; }

 private:
  std::span<const BlockId> ComputedBlocks(const Request& request,
                                          std::span<const BlockId> table) const;
  void NoteLoading(const KvTransferReport& report);
  void NoteRunning(const Step& step, std::span<Request* const> running,
                   const KvTransferReport& report);
  bool IsLoading(BlockId block) const;
  void EndLoad(const RequestId& id);
  std::vector<Kept>::iterator FindKept(const RequestId& id);
  const Kept* Find(const RequestId& id) const;
  void FreeUnneeded();

  KvConnector* connector_;
  KvCacheManager* kv_cache_;
  bool holds_back_;
  std::vector<Request*> loading_;    // asynchronously; not ended
  std::vector<Request*> held_back_;  // loads with a step whose result is not known
  std::vector<Kept> kept_;
  std::vector<HeldOutput> outputs_;  // to be sent
  std::vector<FailedLoad> failed_;
};

}  // namespace tandem
