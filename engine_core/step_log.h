#pragma once

// What a step does, as lines of the log at DEBUG: one for the step, and one for each request that
// enters the batch. Thread: engine loop.

#include "engine_core/scheduler/scheduler.h"
#include "engine_core/scheduler/scheduler_output.h"

namespace tandem {

// REQUIRES: step is the scheduler's newest.
void LogStep(const SchedulerOutput& step, const Scheduler& scheduler);

}  // namespace tandem
