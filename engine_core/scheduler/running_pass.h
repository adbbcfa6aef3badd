#pragma once

// The first pass of a step: running requests get their next tokens in the order of admission. A
// request that needs blocks when none is left preempts others, the last admitted first; where
// priorities count, only those of the lowest one (under priority scheduling the latest arrival of
// them). If a victim's blocks cannot be freed at once, the pass ends. Where shorter prompts go
// first, a prompt that runs leaves them room in the step.
// Thread: engine loop. Owns nothing.

#include <cstdint>

#include "engine_core/scheduler/scheduler_parts.h"
#include "engine_core/scheduler/step_plan.h"

namespace tandem {

class RunningPass {
 public:
  // The parts must outlive it.
  explicit RunningPass(SchedulerParts* parts) : parts_(*parts) {}

  void Run(StepPlan* plan);

 private:
  int32_t NumTokensFor(const Request& request, const StepPlan& plan) const;
  int32_t NumTokensDueBefore(const Request& request, const StepPlan& plan, int32_t most) const;
  bool AwaitsImage(const Request& request) const;
  enum class Room { kMade, kWasPreempted, kNone };
  Room MakeRoom(size_t* running_idx, int32_t num_tokens, StepPlan* plan);
  size_t PickVictim() const;
  void TakeBack(Request* request, StepPlan* plan);

  SchedulerParts& parts_;
};

}  // namespace tandem
