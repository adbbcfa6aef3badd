#pragma once

// The second pass over a step: waiting requests are admitted while budget, slots and blocks last,
// strictly in their order: the first that does not fit ends the pass, so none is starved. Only one
// that waits for something else, its own tokens in flight, is passed over.
// Thread: engine loop. Owns the counts of prefix cache lookups.

#include <cstdint>

#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/request_table.h"
#include "engine_core/scheduler/scheduler_config.h"
#include "engine_core/scheduler/step_plan.h"

namespace tandem {

class WaitingPass {
 public:
  // All must outlive the pass.
  WaitingPass(const SchedulerConfig* config, RequestTable* requests, KvCacheManager* kv_cache)
      : config_(config), requests_(requests), kv_cache_(kv_cache) {}

  // Returns how many it passed over.
  size_t Run(StepPlan* plan);

  // Counts since they were last taken.
  wire::PrefixCacheStats& prefix_cache_stats() { return prefix_cache_stats_; }

 private:
  bool TryAdmit(Request* request, StepPlan* plan);
  void CountLookup(const Request& request, int32_t num_hit_tokens);

  const SchedulerConfig* config_;
  RequestTable* requests_;
  KvCacheManager* kv_cache_;
  wire::PrefixCacheStats prefix_cache_stats_;
};

}  // namespace tandem
