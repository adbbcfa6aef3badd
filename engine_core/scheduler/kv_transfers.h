#pragma once

// What the scheduler has to remember about a KvConnector's transfers: which requests load, and
// which blocks are kept behind the end of their request. Without a connector every call is a no.
// Thread: engine loop. Owns: kept blocks. The connector and the cache must outlive it.

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
  int32_t num_loaded_tokens = 0;  // what it has up to there, its local prefix included
  bool is_async = false;
  bool failed = false;
};

class KvTransfers {
 public:
  // connector: nullptr if there is none.
  KvTransfers(KvConnector* connector, KvCacheManager* kv_cache)
      : connector_(connector), kv_cache_(kv_cache) {}

  bool has_connector() const { return connector_ != nullptr; }

  // What can be brought behind a local prefix; nullopt: ask later.
  std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) const;
  // The request has blocks for what it knows and more: begins its load, if there is anything to
  // load.
  void Begin(Request* request, std::span<const BlockId> table, const KnownTokens& known,
             bool is_async);
  // Whether a running request could lose its blocks.
  bool CanRelease(const Request& request) const;
  // The blocks of a request that ends, in a slot or not: freed, or kept as long as a transfer needs
  // them.
  void FreeOrKeep(Request* request);
  // Takes in what came with a step's result; returns the loads that have ended with it, valid until
  // the next call.
  std::span<const EndedLoad> Settle(const Step& step, const KvTransferNews& news);

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
    int32_t num_tokens = 0;  // what it will have, the local prefix included
    int32_t num_local_tokens = 0;
    int32_t first_failed_block = -1;  // into the table; -1: none
    bool is_async = false;
    bool has_finished = false;  // the request; its blocks are kept
  };

  std::span<const BlockId> TableOf(const Load& load) const;
  void NoteFailure(BlockId block);
  bool HasEnded(const Load& load, const Step& step, const KvTransferNews& news) const;
  void End(const Load& load);
  void FreeKept();

  KvConnector* connector_;
  KvCacheManager* kv_cache_;
  std::vector<Load> loads_;
  std::vector<Kept> kept_;
  std::vector<EndedLoad> ended_;
};

}  // namespace tandem
