#pragma once

// The first pass over a step: requests that run get their next tokens in the order of their
// admission. One that needs blocks when none is left preempts others, the last admitted first
// (under priority scheduling: the least urgent). Where a victim's blocks cannot be had at once, the
// pass ends.
// Thread: engine loop. Owns nothing.

#include <cstdint>

#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/draft_tokens.h"
#include "engine_core/scheduler/request_table.h"
#include "engine_core/scheduler/scheduler_config.h"
#include "engine_core/scheduler/step_plan.h"

namespace tandem {

class RunningPass {
 public:
  // All must outlive the pass.
  RunningPass(const SchedulerConfig* config, RequestTable* requests, KvCacheManager* kv_cache,
              const KvTransfers* transfers, const DraftTokens* drafts)
      : config_(config),
        requests_(requests),
        kv_cache_(kv_cache),
        transfers_(transfers),
        drafts_(drafts) {}

  void Run(StepPlan* plan);

 private:
  int32_t NumTokensFor(const Request& request, const StepPlan& plan) const;
  enum class Room { kMade, kWasPreempted, kNone };
  Room MakeRoom(size_t* running_idx, int32_t num_tokens, StepPlan* plan);
  size_t PickVictim() const;
  void TakeBack(Request* request, StepPlan* plan);

  const SchedulerConfig* config_;
  RequestTable* requests_;
  KvCacheManager* kv_cache_;
  const KvTransfers* transfers_;
  const DraftTokens* drafts_;
};

}  // namespace tandem
