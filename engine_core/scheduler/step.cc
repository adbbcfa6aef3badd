#include "engine_core/scheduler/step.h"

#include <utility>

#include "common/check.h"

namespace tandem {

StepsInFlight::StepsInFlight(int32_t max_num_seqs)
    : max_num_seqs_(static_cast<size_t>(max_num_seqs)) {}

Step* StepsInFlight::Begin() {
  if (spares_.empty()) {
    auto fresh = std::make_unique<Step>();
    fresh->requests.reserve(max_num_seqs_);
    fresh->output.requests.reserve(max_num_seqs_);
    fresh->output.admitted.reserve(max_num_seqs_);
    fresh->output.freed_slots.reserve(max_num_seqs_);
    fresh->output.new_block_ids.reserve(max_num_seqs_);
    spares_.push_back(std::move(fresh));
  }
  // An empty step need not be updated.
  if (!steps_.empty() && !steps_.back()->output.has_work()) {
    spares_.push_back(std::move(steps_.back()));
    steps_.pop_back();
  }
  steps_.push_back(std::move(spares_.back()));
  spares_.pop_back();
  Step* step = steps_.back().get();
  step->output.Clear();
  step->requests.clear();
  return step;
}

const Step& StepsInFlight::End(const SchedulerOutput& output) {
  CHECK(!steps_.empty() && &steps_.front()->output == &output)
      << "steps are updated in the order they were scheduled";
  spares_.push_back(std::move(steps_.front()));
  steps_.erase(steps_.begin());
  return *spares_.back();
}

}  // namespace tandem
