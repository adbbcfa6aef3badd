#pragma once

// The attention plans of a step, one for each group of layers: the tokens are the same, their
// blocks and slots are not. Of a model without groups one.
// Thread: engine loop of a rank. Owns: the plans. Failure: memory, in Create.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "engine_core/executor/step_inputs.h"
#include "engine_core/kv_cache/layer_groups.h"
#include "kernels/backend.h"

namespace tandem {

class GroupPlans {
 public:
  GroupPlans() = default;
  static StatusOr<GroupPlans> Create(Backend* backend, const AttentionShape& shape,
                                     const LayerGroups& groups, int64_t max_tokens,
                                     int64_t max_requests);

  int64_t count() const { return static_cast<int64_t>(plans_.size()); }
  // AttentionPlan::WorkSize.
  int64_t WorkSize(int64_t num_tokens, int64_t num_requests) const {
    return plans_[0]->WorkSize(num_tokens, num_requests);
  }
  // As ModelStep takes them.
  const AttentionPlan* first() const { return plans_[0].get(); }
  std::span<const std::unique_ptr<AttentionPlan>> others() const {
    return std::span(plans_).subspan(1);
  }

  // Describes a step, after StepInputs::Fill or Take and before Send. REQUIRES: as many groups.
  void Fill(const StepInputs& inputs, const StepLengths& lengths);
  // The same where ops read the numbers in the host's memory.
  void Fill(const StepInputs::Views& inputs, const StepLengths& lengths);

 private:
  std::vector<std::unique_ptr<AttentionPlan>> plans_;
};

}  // namespace tandem
