#pragma once

// The second pass of a step: waiting requests are admitted while budget, slots and blocks last,
// strictly in order: the first that does not fit ends the pass, so that none is starved. Only a
// request that waits for something else is passed over: its own tokens in flight, a grammar, KV
// that is being loaded or looked for, a free place for its adapter. Requests that hold blocks come
// first. Thread: engine loop. Owns the statistics of prefix cache lookups.

#include <cstdint>
#include <optional>
#include <span>

#include "engine_core/scheduler/scheduler_parts.h"
#include "engine_core/scheduler/step_plan.h"

namespace tandem {

class WaitingPass {
 public:
  // The parts must outlive it.
  explicit WaitingPass(SchedulerParts* parts) : parts_(*parts) {}

  // admits_new: also requests that hold no blocks.
  void Run(bool admits_new, StepPlan* plan);

  // Since it was last reset by the caller.
  wire::PrefixCacheStats& prefix_cache_stats() { return prefix_cache_stats_; }

 private:
  enum class Outcome { kAdmitted, kWaits, kNoRoom };
  // What a request does not have to compute.
  struct Prefix {
    std::span<const BlockId> cached;
    KnownTokens known;
    bool is_async = false;  // the remote part comes later
    bool looked_up = false;
  };

  bool RunQueue(const RequestQueue& queue, StepPlan* plan);
  Outcome TryTake(Request* request, StepPlan* plan);
  std::optional<Prefix> FindPrefix(const Request& request) const;
  bool TryAdmit(Request* request, const Prefix& prefix, StepPlan* plan);
  bool IsPadded(int32_t num_left, const Prefix& prefix, const StepPlan& plan) const;
  bool TryLoad(Request* request, const Prefix& prefix);
  bool TryGetBlocks(Request* request, const Prefix& prefix, int32_t num_tokens);
  void CountLookup(const Request& request, int32_t num_hit_tokens);

  SchedulerParts& parts_;
  wire::PrefixCacheStats prefix_cache_stats_;
};

}  // namespace tandem
