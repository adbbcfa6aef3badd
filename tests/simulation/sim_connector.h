#pragma once

// A KV connector that draws from a seed what it can load, how long that takes, what fails and how
// long it keeps blocks. Loaded KV is right: the hashes that belong there. Both sides are here; the
// worker's runs within SimExecutor's steps.
// Thread: engine loop. Failure: a breach of the contract (blocks changed while a transfer needs
// them, a request that disappears …) is INTERNAL and names it.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/scheduler/kv_connector.h"
#include "engine_core/scheduler/request.h"
#include "tests/simulation/sim_executor.h"
#include "tests/simulation/sim_random.h"

namespace tandem {

class SimConnector final : public KvConnector {
 public:
  // The executor must outlive it.
  SimConnector(uint64_t seed, SimExecutor* executor);

  std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) override;
  void OnAllocated(const Request& request, std::span<const BlockId> table, int32_t num_local_tokens,
                   const KvMatch& match) override;
  bool WillFreeBlocks() const override { return !saves_.empty(); }
  KvEnding OnFinished(const Request& request, wire::RequestStatus status,
                      std::span<const BlockId> table) override;

  // The worker's side, at the beginning of a step.
  Status Work(KvTransferReport* report);

  // Whether the step that has just ended may have waited for it: since the last call it has
  // returned "later", or a transfer was under way, or ended but not reported to the engine. Called
  // once a step.
  bool TakeWasBusy();
  // Whether it was ever involved with the request: others may have overtaken it.
  bool HasTouched(const RequestId& id) const { return touched_.contains(id); }
  // Whether a load of the request has failed, or of one whose blocks it shares.
  bool HasFailed(const RequestId& id) const {
    return failed_.contains(id) || executor_->HasHadGarbage(id);
  }
  // Requests that run while the connector is about to free blocks: they may end, but not be
  // preempted.
  std::vector<RequestId> Saving() const;

  int64_t num_loads() const { return num_loads_; }
  int64_t num_failures() const { return static_cast<int64_t>(failed_.size()); }
  int64_t num_kept() const { return num_kept_; }

 private:
  struct Load {
    RequestId id;
    std::vector<TokenId> token_ids;
    std::shared_ptr<const RequestImages> images;
    uint64_t first_hash = 0;
    std::vector<BlockId> table;
    int32_t begin = 0;  // positions
    int32_t end = 0;
    bool is_async = false;
    int32_t num_polls = 0;    // before it ends
    int32_t failed_from = 0;  // position; end: it succeeds
    bool failure_reported = false;
    int64_t begun_at_step = 0;
  };
  struct KeptTable {
    std::vector<BlockId> table;
    int32_t num_polls = 0;
    int64_t num_steps = 0;  // of the executor, when the request ended
  };

  bool IsBusy() const;
  Status Perform(const Load& load);
  void ReportFailure(Load* load, KvTransferReport* report);
  void Distrust(BlockId block);

  SimRandom random_;
  SimExecutor* executor_;
  std::map<RequestId, int32_t> asked_;  // → how often it still returns "later"
  std::vector<Load> loads_;
  std::map<RequestId, KeptTable> kept_;
  std::map<RequestId, int32_t> saves_;  // → polls before it ends
  std::set<RequestId> touched_;
  std::set<RequestId> failed_;
  bool was_busy_ = false;
  int64_t last_report_at_step_ = 0;  // of the executor
  int64_t num_loads_ = 0;
  int64_t num_kept_ = 0;
};

}  // namespace tandem
