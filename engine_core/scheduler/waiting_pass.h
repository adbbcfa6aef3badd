#pragma once

// The second pass of a step: waiting requests are admitted while budget, slots and blocks last,
// strictly in order: the first that does not fit ends the pass, so that none is starved. Only a
// request that waits for something else is passed over: its own tokens in flight, a grammar, KV
// that is being loaded or looked for, slices of an image, a free place for its adapter. Requests
// that hold blocks come first. Thread: engine loop. Owns the statistics of prefix cache lookups.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine_core/scheduler/scheduler_parts.h"
#include "engine_core/scheduler/step_plan.h"

namespace tandem {

class WaitingPass {
 public:
  // The parts must outlive it.
  explicit WaitingPass(SchedulerParts* parts) : parts_(*parts) {}

  void Run(StepPlan* plan);

  // Since it was last reset by the caller.
  wire::PrefixCacheStats& prefix_cache_stats() { return prefix_cache_stats_; }
  wire::PrefixCacheStats& connector_stats() { return connector_stats_; }  // what it could load

 private:
  enum class Outcome { kAdmitted, kWaits, kNoRoom };
  // What a request does not have to compute.
  struct Prefix {
    std::span<const BlockId> cached;
    KnownTokens known;
    bool is_async = false;  // the remote part comes later
    bool looked_up = false;
    bool was_asked = false;  // the connector
  };

  bool RunQueue(const RequestQueue& queue, StepPlan* plan);
  Outcome TryTake(Request* request, StepPlan* plan);
  std::optional<Prefix> FindPrefix(Request* request, const StepPlan& plan) const;
  std::span<const BlockId> FindLocal(const Request& request, const StepPlan& plan) const;
  Outcome TryAdmit(Request* request, const Prefix& prefix, StepPlan* plan);
  bool IsPadded(int32_t num_left, const Prefix& prefix, const StepPlan& plan) const;
  bool TryLoad(Request* request, const Prefix& prefix, const StepPlan& plan);
  int32_t NumReservedBlocks(const StepPlan& plan) const;
  bool TryGetBlocks(Request* request, const Prefix& prefix, Admission admission);
  void CountLookups(const Request& request, const Prefix& prefix);

  SchedulerParts& parts_;
  std::vector<Request*> moved_;  // out of holding() when the pass ends
  wire::PrefixCacheStats prefix_cache_stats_;
  wire::PrefixCacheStats connector_stats_;
  wire::CountsByName hit_sources_;  // of the request that has just got its blocks
};

}  // namespace tandem
