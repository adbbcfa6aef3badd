#include "engine_core/executor/group_plans.h"

#include "common/check.h"

namespace tandem {

StatusOr<GroupPlans> GroupPlans::Create(Backend* backend, const AttentionShape& shape,
                                        const LayerGroups& groups, int64_t max_tokens,
                                        int64_t max_requests) {
  GroupPlans result;
  for (int32_t group = 0; group < groups.count(); ++group) {
    ASSIGN_OR_RETURN(result.plans_.emplace_back(),
                     backend->MakeAttentionPlan(shape, max_tokens, max_requests));
  }
  return result;
}

void GroupPlans::Fill(const StepInputs& inputs, const StepLengths& lengths) {
  CHECK_EQ(inputs.shape().num_groups, count());
  for (int64_t group = 0; group < count(); ++group) {
    FillPlan(lengths, inputs, plans_[static_cast<size_t>(group)].get(), group);
  }
}

void GroupPlans::Fill(const StepInputs::Views& inputs, const StepLengths& lengths) {
  CHECK_EQ(inputs.slots.rows(), count() * inputs.positions.rows());
  for (int64_t group = 0; group < count(); ++group) {
    plans_[static_cast<size_t>(group)]->Fill(AttentionBatchOf(inputs, lengths, group));
  }
}

}  // namespace tandem
