#pragma once

// A rank other than the engine core's: runs its part of the model for each step that is published
// (rank_group.h), and has the KV of its heads and layers. What the step is for it does not know.
// On a device of its own it captures and replays what the engine core's rank does.
// Thread: one, that of Run. Owns: backend, model, KV cache; borrows the group. Failure: memory.

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/status.h"
#include "engine_core/executor/group_plans.h"
#include "engine_core/executor/model_runner.h"
#include "engine_core/executor/model_source.h"
#include "engine_core/executor/rank_adapters.h"
#include "engine_core/executor/rank_group.h"

namespace tandem {

class RankRunner {
 public:
  // REQUIRES: `model` is the part of group's place, loaded over `backend` with ModelLimitsOf limits
  // at least as large. The groups of layers and the block size of options.limits are the group's.
  static StatusOr<std::unique_ptr<RankRunner>> Create(std::unique_ptr<Backend> backend,
                                                      std::unique_ptr<Model> model,
                                                      const ModelConfig& config,
                                                      const ModelRunnerOptions& options,
                                                      RankGroup* group);

  // Where the part comes from after a sleep; without this call there is none.
  void SetSource(std::unique_ptr<ModelSource> source) { source_ = std::move(source); }

  // With adapters: those that steps name, which outlive it.
  void SetAdapters(RankAdapters* adapters) { adapters_ = adapters; }
  const Backend& backend() const { return *backend_; }

  // Returns when the group is abandoned (OK), or why this rank cannot go on.
  Status Run();

 private:
  RankRunner(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
             const KvCacheSpec& kv_spec, bool shares_kv_cache, int64_t max_logits_rows,
             RankGroup* group)
      : backend_(std::move(backend)),
        model_(std::move(model)),
        kv_spec_(kv_spec),
        shares_kv_cache_(shares_kv_cache),
        max_logits_rows_(max_logits_rows),
        group_(group) {}
  Device& device() { return backend_->device(); }
  // INTERNAL: this rank would number blocks otherwise than the step's tables do.
  Status AllocateKvCache(int32_t num_blocks, int64_t numbers_per_block);
  Status Change(WeightsChange change);
  Status RunStep(const RankGroup::Record& step);
  // The same with a device: what the record has is copied, and it may be released.
  Status RunOnDevice(const RankGroup::Record& step);
  // Of a step between ranks that share memory; a device's step has number 0, and its own memory.
  void RunLayers(const StepInputs::Views& inputs, int64_t step_number, const StepRows& rows = {},
                 const StepAdapters* adapters = nullptr);
  void MakeLogits(const StepInputs::Views& inputs);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvCache> kv_cache_;
  std::unique_ptr<Model> model_;
  GroupPlans plans_;
  StepInputs inputs_;                                       // of a device
  std::map<int64_t, std::unique_ptr<CapturedOps>> graphs_;  // by number of requests
  KvCacheSpec kv_spec_;
  bool shares_kv_cache_;
  std::vector<KvPlace> kv_places_;  // of several groups of layers
  std::vector<StateTap> taps_;      // of the newest step
  int64_t max_logits_rows_;
  RankGroup* group_;
  RankAdapters* adapters_ = nullptr;
  std::unique_ptr<ModelSource> source_;
};

}  // namespace tandem
