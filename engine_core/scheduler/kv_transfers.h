#pragma once

// The transfers of a KvConnector as the scheduler tracks them: which requests load, and which
// blocks are kept after their request has ended. Without a connector every call does nothing.
// Thread: engine loop. Owns: kept blocks. The connector and the cache must outlive it.
// Nothing turns this on yet: only the simulation has a connector.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/kv_connector.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/step.h"

namespace tandem {

// A load that has ended.
struct EndedLoad {
  Request* request = nullptr;     // waiting or running
  int32_t num_loaded_tokens = 0;  // from the start, its local prefix included
  bool is_async = false;
  bool failed = false;
};

class KvTransfers {
 public:
  // connector: nullptr if there is none.
  KvTransfers(KvConnector* connector, KvCacheManager* kv_cache)
      : connector_(connector), kv_cache_(kv_cache) {}

  bool has_connector() const { return connector_ != nullptr; }

  // What can be loaded after a local prefix; nullopt: ask later.
  std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) const;
  // The request has its blocks: begins its load, if there is anything to load.
  void Begin(Request* request, std::span<const BlockId> table, const KnownTokens& known,
             bool is_async);
  // Whether a running request may lose its blocks.
  bool CanRelease(const Request& request) const;
  // Frees the blocks of a request that ends, or keeps them as long as a transfer needs them.
  void FreeOrKeep(Request* request);
  // Handles the worker's report that came with a step's result; returns the loads that have ended
  // with it, valid until the next call.
  std::span<const EndedLoad> Settle(const Step& step, const KvTransferReport& report);

  // Whether blocks are kept under this id: it cannot name another request yet.
  bool Keeps(const RequestId& id) const;
  bool keeps_any() const { return !kept_.empty(); }

  struct Kept {
    RequestId id;
    HeldBlocks blocks;
    bool is_loading = false;
    bool is_read = false;
    bool is_needed() const { return is_loading || is_read; }
  };
  const std::vector<Kept>& kept() const { return kept_; }

 private:
  struct Load {
    RequestId id;
    Request* request = nullptr;
    int32_t num_tokens = 0;  // when it has ended, the local prefix included
    int32_t num_local_tokens = 0;
    int32_t first_failed_block = -1;  // into the table; -1: none
    bool is_async = false;
    bool has_finished = false;  // the request; its blocks are kept
  };

  std::span<const BlockId> TableOf(const Load& load) const;
  void NoteFailure(BlockId block);
  bool HasEnded(const Load& load, const Step& step, const KvTransferReport& report) const;
  void End(const Load& load);
  void FreeKept();

  KvConnector* connector_;
  KvCacheManager* kv_cache_;
  std::vector<Load> loads_;
  std::vector<Kept> kept_;
  std::vector<EndedLoad> ended_;
};

}  // namespace tandem
