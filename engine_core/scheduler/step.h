#pragma once

// A scheduled step and, parallel to its requests, whose they are. Requests are named by pointer and
// not by slot: a slot may have another owner by the time the result comes.
// Thread: engine loop. StepsInFlight owns the steps and reuses them; a steady decode step allocates
// nothing.

#include <memory>
#include <vector>

#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/scheduler_output.h"

namespace tandem {

struct Step {
  SchedulerOutput output;
  std::vector<Request*> requests;  // alive while the step is in flight
};

// Scheduled, but not updated yet; oldest first.
class StepsInFlight {
 public:
  explicit StepsInFlight(int32_t max_num_seqs);
  // A new, cleared step.
  Step* Begin();
  // Takes the oldest step out, which must be the one of `output`; steps before it may only be empty
  // ones. It stays as it is until the next Begin.
  const Step& End(const SchedulerOutput& output);

 private:
  size_t max_num_seqs_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<std::unique_ptr<Step>> spares_;
};

}  // namespace tandem
