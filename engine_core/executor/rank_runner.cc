#include "engine_core/executor/rank_runner.h"

#include <algorithm>
#include <utility>

#include "common/log.h"

namespace tandem {

StatusOr<std::unique_ptr<RankRunner>> RankRunner::Create(std::unique_ptr<Backend> backend,
                                                         std::unique_ptr<Model> model,
                                                         const ModelConfig& config,
                                                         const ModelRunnerOptions& options,
                                                         RankGroup* group) {
  CHECK(backend->device().memory_is_host()) << "ranks are not built for devices";
  const ExecutorLimits& limits = options.limits;
  const KvCacheSpec spec =
      KvSpecOf(config, limits.block_size, 0, options.kv_format, group->place());
  std::unique_ptr<RankRunner> runner(new RankRunner(std::move(backend), std::move(model), spec,
                                                    ModelLimitsOf(limits).max_logits_rows, group));
  ASSIGN_OR_RETURN(runner->plan_, runner->backend_->MakeAttentionPlan(
                                      AttentionShapeOf(config, group->place().share),
                                      limits.max_num_batched_tokens, limits.max_num_seqs));
  return runner;
}

Status RankRunner::Run() {
  while (const std::optional<RankGroup::Record> record = group_->Read()) {
    if (record->step > 0) {
      RunStep(*record);
    } else if (record->weights == WeightsChange::kNone) {
      RETURN_IF_ERROR(AllocateKvCache(record->num_blocks));
    } else {
      const Status changed = Change(record->weights);
      if (!changed.ok()) LOG_ERROR << "after a sleep: " << changed.message();
      group_->EndWeightsChange(!changed.ok());
    }
    group_->Release();
  }
  return OkStatus();
}

Status RankRunner::AllocateKvCache(int32_t num_blocks) {
  kv_cache_.reset();
  kv_spec_.num_blocks = num_blocks;
  if (num_blocks == 0) return OkStatus();
  ASSIGN_OR_RETURN(kv_cache_, backend_->AllocateKvCache(kv_spec_));
  return OkStatus();
}

Status RankRunner::Change(WeightsChange change) {
  if (change == WeightsChange::kLoad) {
    ASSIGN_OR_RETURN(model_, source_->Load(backend_.get()));
    return OkStatus();
  }
  model_.reset();
  if (change == WeightsChange::kForget) source_->Close();
  return group_->communicator()->ForgetTensors();
}

void RankRunner::RunStep(const RankGroup::Record& step) {
  const StepInputs::Views& inputs = step.inputs;
  plan_->Fill(AttentionBatchOf(inputs, step.query_start, step.context_len));
  const Tensor hidden = group_->AwaitHidden(step.step, inputs.token_ids.rows());
  model_->Forward({.token_ids = inputs.token_ids,
                   .plan = plan_.get(),
                   .kv_cache = kv_cache_.get(),
                   .hidden = hidden});
  group_->EndStage(step.step);
  if (!group_->place().stage.is_last()) return;
  const int64_t count = inputs.logits_rows.rows();
  for (int64_t first = 0; first < count; first += max_logits_rows_) {
    model_->Logits({}, inputs.logits_rows.Rows(first, std::min(max_logits_rows_, count - first)));
  }
}

}  // namespace tandem
