#include "engine_core/executor/rank_runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/log.h"

namespace tandem {

StatusOr<std::unique_ptr<RankRunner>> RankRunner::Create(std::unique_ptr<Backend> backend,
                                                         std::unique_ptr<Model> model,
                                                         const ModelConfig& config,
                                                         const ModelRunnerOptions& options,
                                                         RankGroup* group) {
  const ExecutorLimits& limits = options.limits;
  CHECK(limits.groups == group->shape().groups && limits.block_size == group->shape().block_size);
  const KvCacheSpec spec =
      KvSpecOf(config, limits.block_size, 0, options.kv_format, group->place(), limits.groups);
  std::unique_ptr<RankRunner> runner(new RankRunner(std::move(backend), std::move(model), spec,
                                                    options.shares_kv_cache,
                                                    ModelLimitsOf(limits).max_logits_rows, group));
  if (limits.groups.count() > 1) {
    runner->kv_places_ = KvPlacesOf(config, group->place().stage);
  }
  AttentionShape shape = AttentionShapeOf(config, group->place().share);
  AddStates(spec, &shape);
  const int64_t tokens = limits.max_num_batched_tokens, seqs = limits.max_num_seqs;
  ASSIGN_OR_RETURN(runner->plans_,
                   GroupPlans::Create(runner->backend_.get(), shape, limits.groups, tokens, seqs));
  if (runner->device().memory_is_host()) return runner;
  ASSIGN_OR_RETURN(
      runner->inputs_,
      StepInputs::Create(
          &runner->device(),
          {.num_tokens = tokens,
           .num_requests = seqs,
           .num_logits_rows = tokens,
           .attention_work = runner->plans_.WorkSize(tokens, seqs),
           .table_columns = (limits.max_model_len + limits.block_size - 1) / limits.block_size,
           .num_groups = limits.groups.count()}));
  return runner;
}

Status RankRunner::Run() {
  while (const std::optional<RankGroup::Record> record = group_->Read()) {
    if (record->step > 0) {
      RETURN_IF_ERROR(device().memory_is_host() ? RunStep(*record) : RunOnDevice(*record));
    } else if (record->weights == WeightsChange::kNone) {
      RETURN_IF_ERROR(AllocateKvCache(record->num_blocks, record->numbers_per_block));
    } else {
      const Status changed = Change(record->weights);
      if (!changed.ok()) LOG_ERROR << changed.message();
      group_->EndWeightsChange(!changed.ok());
    }
    group_->Release();
  }
  return OkStatus();
}

Status RankRunner::AllocateKvCache(int32_t num_blocks, int64_t numbers_per_block) {
  kv_cache_.reset();
  kv_spec_.num_blocks = num_blocks;
  if (num_blocks == 0) return OkStatus();
  ASSIGN_OR_RETURN(kv_cache_, backend_->AllocateKvCache(kv_spec_));
  if (shares_kv_cache_) RETURN_IF_ERROR(group_->PlaceKvCache(group_->rank(), *kv_cache_));
  if (kv_cache_->numbers_per_block() == numbers_per_block) return OkStatus();
  return InternalError("a block is " + std::to_string(kv_cache_->numbers_per_block()) +
                       " numbers at this rank and " + std::to_string(numbers_per_block) +
                       " at the engine core's");
}

Status RankRunner::Change(WeightsChange change) {
  if (change == WeightsChange::kReportMemory) {
    device().WaitFor(device().SetMark());
    group_->lines()[group_->rank()].free_bytes.store(device().memory().free_bytes);
    return device().status();
  }
  if (change == WeightsChange::kLoad) {
    ASSIGN_OR_RETURN(model_, source_->Load(backend_.get()));
    return OkStatus();
  }
  model_.reset();
  if (change == WeightsChange::kForget) source_->Close();
  return group_->communicator()->ForgetTensors();
}

Status RankRunner::RunStep(const RankGroup::Record& step) {
  plans_.Fill(step.inputs, step.lengths);
  if (step.mode == StepMode::kTakeInDrafts) {
    model_->TakeInDrafts(step.inputs.logits_rows, group_->TurnOf(step.step));
    return OkStatus();
  }
  StepAdapters adapters = {.slots = step.inputs.adapters};
  if (!step.adapters.empty()) adapters.adapters = adapters_->Of(step.adapters);
  RunLayers(step.inputs, step.step, step.rows.view(), step.adapters.empty() ? nullptr : &adapters);
  group_->EndStage(step.step);
  if (group_->place().stage.is_last()) MakeLogits(step.inputs);
  return OkStatus();
}

Status RankRunner::RunOnDevice(const RankGroup::Record& step) {
  inputs_.Begin(step.shape);
  inputs_.Take(step.numbers);
  plans_.Fill(inputs_, step.lengths);
  inputs_.Send();
  if (step.mode == StepMode::kTakeInDrafts) {
    model_->TakeInDrafts(inputs_.device().logits_rows, 0);
    return device().status();
  }
  if (step.mode == StepMode::kReplay) {
    const auto graph = graphs_.find(step.shape.num_requests);
    CHECK(graph != graphs_.end()) << "no graph of " << step.shape.num_requests;
    device().Replay(*graph->second);
    return device().status();
  }
  const auto run = [this] {
    RunLayers(inputs_.device(), 0);
    MakeLogits(inputs_.device());
  };
  run();
  if (step.mode == StepMode::kCapture) {
    device().BeginCapture();
    run();
    ASSIGN_OR_RETURN(graphs_[step.shape.num_requests], device().EndCapture());
  }
  return device().status();
}

void RankRunner::RunLayers(const StepInputs::Views& inputs, int64_t step_number,
                           const StepRows& rows, const StepAdapters* adapters) {
  if (RankExchange* exchange = backend_->exchange()) exchange->ShareIds(inputs.token_ids);
  ModelStep step = {.token_ids = inputs.token_ids,
                    .token_types = inputs.token_types,
                    .plan = plans_.first(),
                    .other_plans = plans_.others(),
                    .kv_cache = kv_cache_.get(),
                    .kv_places = kv_places_,
                    .adapters = adapters};
  rows.PutInto(&step);
  if (step_number > 0) {
    step.hidden = group_->AwaitHidden(step_number, inputs.token_ids.rows());
    step.layer_inputs = group_->LayerInputsOf(step_number, inputs.token_ids.rows());
    step.turn = group_->TurnOf(step_number);
    const Tensor states =
        group_->StatesOf(step_number, inputs.token_ids.rows(), backend_->activation_dtype());
    // All ranks of a stage have them.
    if (!states.empty() && group_->place().share.is_first()) {
      SetTaps(group_->shape().taken_layers(), states, &taps_);
      step.taps = taps_;
    }
  }
  model_->Forward(step);
}

void RankRunner::MakeLogits(const StepInputs::Views& inputs) {
  const int64_t count = inputs.logits_rows.rows();
  for (int64_t first = 0; first < count; first += max_logits_rows_) {
    model_->Logits({}, inputs.logits_rows.Rows(first, std::min(max_logits_rows_, count - first)));
  }
}

}  // namespace tandem
