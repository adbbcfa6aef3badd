#pragma once

// A scheduled step with the requests it runs. They are named by pointer, not by slot: a slot may
// belong to another request by the time the result arrives.
// Thread: engine loop. StepsInFlight owns the steps and reuses them; a steady decode step allocates
// nothing.

#include <memory>
#include <vector>

#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/scheduler_output.h"

namespace tandem {

struct Step {
  SchedulerOutput output;
  std::vector<Request*> requests;  // parallel to output.requests; alive while the step is in flight
};

// Steps that are scheduled and not updated yet, oldest first.
class StepsInFlight {
 public:
  explicit StepsInFlight(int32_t max_num_seqs);
  // A new, cleared step.
  Step* Begin();
  // Removes and returns the oldest step, which must be the one of `output`. It is valid until the
  // next Begin.
  const Step& End(const SchedulerOutput& output);

 private:
  size_t max_num_seqs_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<std::unique_ptr<Step>> spares_;
};

}  // namespace tandem
