#pragma once

// The Executor that runs a model. A step goes through its parts in one order: the batch takes in
// what has changed (InputBatch), its tokens are laid out (StepLayout), sent (StepInputs), run
// through the model or a captured graph of it (Model, DecodeGraphs), and sampled (StepSampler).
// Where the backend has a device of its own, Submit returns once the step is on its way, and the
// next step may be submitted then: tokens that were sampled on the device are its inputs before the
// host has seen them.
// Token masks may still be made while the model runs on the host: they are taken in after it.
// Drafts go through StepDrafts. Layers with a state take in those that were accepted once the step
// is sampled.
// Where several ranks run the model, the step's inputs go to them as well (RankGroup); ranks with a
// device each get the ids that were sampled on this one's from there. As the last
// stage of a pipeline this one runs a step when its result is wanted, so that the stages before it
// already work on the next. Drafts that states take in are then an order behind the steps that were
// sent before it: ranks of a stage meet in both, so all run them in that order.
// A model that pools (ExecutorLimits::pooling) makes no logits: Pooler reads the hidden states in
// place of StepSampler.
//
// Thread: engine loop; sampling of different rows runs on the backend's threads.
// Owns: backend, model, KV cache, the persistent batch, all step buffers; everything is allocated
// from the limits before the first step, but the rows of images (StepImages).
// Failure: memory, before the first step. Submit fails for no input; a failure of one request is
// its RequestResult::status.

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "engine_core/executor/adapter_places.h"
#include "engine_core/executor/decode_graphs.h"
#include "engine_core/executor/draft_model.h"
#include "engine_core/executor/embedded_inputs.h"
#include "engine_core/executor/executor.h"
#include "engine_core/executor/group_plans.h"
#include "engine_core/executor/input_batch.h"
#include "engine_core/executor/model_sizes.h"
#include "engine_core/executor/model_source.h"
#include "engine_core/executor/pooler.h"
#include "engine_core/executor/rank_group.h"
#include "engine_core/executor/result_queue.h"
#include "engine_core/executor/step_clock.h"
#include "engine_core/executor/step_drafts.h"
#include "engine_core/executor/step_images.h"
#include "engine_core/executor/step_inputs.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/executor/step_sampler.h"
#include "engine_core/models/model.h"
#include "kernels/backend.h"

namespace tandem {

struct ModelRunnerOptions {
  ExecutorLimits limits;
  KvFormat kv_format = KvFormat::kCompute;
  int64_t max_logprobs = 20;
  LogprobsMode logprobs_mode = LogprobsMode::kRawLogprobs;
  AdapterLimits adapters = {};  // without sites no request has one
  uint64_t process_seed = 0;
  // Ascending; batches for which decode steps are captured, where the backend can.
  std::vector<int64_t> graph_sizes = {};
  SpeculativeConfig speculation = {};
  // The ranks that run the model together, of which this is the output rank; null: there is one.
  RankGroup* ranks = nullptr;
  // The ranks' KV caches lie in memory that all of them see, for a KV connector.
  bool shares_kv_cache = false;
  PoolerHead pooler_head = {};  // with limits.pooling
};

class ModelRunner final : public Executor {
 public:
  // REQUIRES: `model`, and what `draft` has, were loaded over `backend` with ModelLimitsOf limits
  // at least as large.
  static StatusOr<std::unique_ptr<ModelRunner>> Create(std::unique_ptr<Backend> backend,
                                                       std::unique_ptr<Model> model,
                                                       const ModelConfig& config,
                                                       const ModelRunnerOptions& options,
                                                       DraftModel draft = {});

  // Create in its parts, for a caller that sizes the KV cache by the memory that is left:
  // everything but the cache (num_blocks is not read yet);
  static StatusOr<std::unique_ptr<ModelRunner>> CreateWithoutCache(
      std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, const ModelConfig& config,
      const ModelRunnerOptions& options, DraftModel draft = {});
  // steps of the largest size and of ever smaller ones, after which all memory that steps need is
  // taken, and a backend has chosen what it chooses when it first meets a size;
  Status RunFirstSteps();
  // the cache, for requests of at most max_model_len tokens; and the graphs of graph_sizes.
  Status AllocateKvCache(int32_t num_blocks, int32_t max_model_len);
  // Another rank's cache in this process. REQUIRES: it is shared; spec is that rank's, but for the
  // number of blocks; the cache is allocated.
  StatusOr<std::unique_ptr<KvCache>> MapKvCacheOf(int rank, KvCacheSpec spec);
  Status CaptureGraphs();
  // Times decode steps of some sizes, from which it is decided whether a draft pays. Without this
  // the costs are guessed until real steps have been seen.
  void MeasureSteps();
  void DropGraphs() {
    graphs_.Drop();
    adapted_graphs_.Drop();
    if (drafts_) drafts_->DropGraphs();
  }
  // Of a model with limits().images, before its first step: whole, also where there are other
  // ranks, which have no devices of their own.
  void SetTower(std::unique_ptr<VisionTower> tower);

  const ExecutorLimits& limits() const override { return limits_; }
  const Backend& backend() const { return *backend_; }
  const KvCache& kv_cache() const { return *kv_cache_; }  // once it is allocated
  int64_t num_graphs() const { return graphs_.num_graphs() + adapted_graphs_.num_graphs(); }
  int64_t num_replays() const { return graphs_.num_replays() + adapted_graphs_.num_replays(); }
  int64_t num_replayed_passes() const { return drafts_ ? drafts_->num_replays() : 0; }
  int64_t num_adapter_loads() const { return places_ == nullptr ? 0 : places_->num_loads(); }
  int64_t num_kept_image_rows() const { return images_ ? images_->num_kept_rows() : 0; }
  // Steps that were submitted before the host had the tokens of the one before.
  int64_t num_overlapped() const { return num_overlapped_; }
  // From the next step on, device_times() counts the steps that were collected.
  void StartClock() { clock_.Start(&backend_->device()); }
  const DeviceTimes& device_times() const { return clock_.times(); }
  Status Submit(const SchedulerOutput& step) override;
  Status Collect(ModelOutput* result) override;

  // Without this call the runner keeps its memory. draft_source: of a drafter with a model, which
  // may read the target's tables. REQUIRES: memory is the host's.
  using DraftSource = std::function<StatusOr<DraftModel>(const Model& target, Backend* backend)>;
  void SetSource(std::unique_ptr<ModelSource> source, DraftSource draft_source = {});
  Status Release(const MemoryParts& parts, bool rereads) override;
  Status Restore(const MemoryParts& parts) override;

 private:
  // A step that was submitted, until its result is there.
  struct StepInFlight {
    ModelOutput* result = nullptr;  // null: there is none
    StepLayout layout;
    StepSamples samples;
    RankGroup::PublishedStep published;  // with several ranks
    // Of accepted drafts: the last step that was sent before them, which runs first; 0: they are
    // taken in.
    int64_t runs_after = 0;
    StepClock::Step times;
    double seconds = 0;  // in Submit and FinishStep
  };

  ModelRunner(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
              const ModelConfig& config, const ModelRunnerOptions& options);
  Status Allocate(PoolerHead head);
  Status MakeDrafts(const ModelRunnerOptions& options, DraftModel draft);
  Status status() const;

  // Whether the newest step must be finished before this one is taken in: the host samples inputs
  // of it, or a row goes away in which one of its results is gathered.
  bool MustFinishFirst(const SchedulerOutput& step) const;
  void TakeIn(const SchedulerOutput& step);
  // Those that come from the host, of embeddings and images.
  void FillRows(const StepLayout& layout);
  // Of the block tables. Ops that were captured find those of all groups where they were then.
  int64_t TableColumns(const StepLayout& layout, StepMode mode) const;
  // Inputs and attention plans, on their way before the next ops. mode: of the other ranks.
  void SendInputs(StepInFlight* step, StepMode mode);
  // A step of padding alone. is_adapted: with the ops for adapters.
  void SendPadding(int64_t num_tokens, int64_t tokens_per_request, bool is_adapted,
                   StepMode mode = StepMode::kRun);
  // Where stages before this one put what a head reads; empty: there are none, or it reads nothing.
  Tensor StatesRoom(const StepInFlight& step) const;
  // The layers, and the first rows of logits.
  void RunModel(const StepInFlight& step);
  // The rows of logits from `first` on that are made at a time; the device's are sampled.
  void RunLogits(const StepInFlight& step, int64_t first);
  // Those of FillRows.
  StepRows RowsOfNewest() const;
  // Where the model reads the step's numbers.
  const StepInputs::Views& InputsOf(const StepInFlight& step) const {
    return reads_ring_ ? step.published.inputs : inputs_.device();
  }
  Status SubmitPooled();
  // The model, then the pooler: the step's result is complete.
  void RunPooled(StepInFlight* step);
  // From a step's logits to its result; as the last stage, from the hidden states.
  void FinishStep(StepInFlight* step);
  // States take in the drafts of a step that were accepted: now, or as the last stage of several
  // when the steps have run that were sent to the other ranks before.
  void TakeInDrafts(const StepInFlight& step);
  void RunTakenDrafts(const StepInFlight& taken);
  // Those that wait for no step after this one.
  void RunTakenAfter(int64_t step);
  void FinishAll();
  Status ReleaseWeights(bool rereads);
  Status LoadWeights();

  ExecutorLimits limits_;
  std::unique_ptr<Backend> backend_;
  KvCacheSpec kv_spec_;
  const std::vector<KvPlace> kv_places_;  // of several groups of layers
  AttentionShape attention_shape_;
  std::unique_ptr<KvCache> kv_cache_;
  std::unique_ptr<Model> model_;         // null: released
  std::unique_ptr<ModelSource> source_;  // null: the memory is kept
  DraftSource draft_source_;
  bool rereads_ = false;  // weights that are released come from the folder, not from open files
  GroupPlans plans_;
  InputBatch batch_;
  StepInputs inputs_;                        // of the newest step
  EmbeddedInputs embedded_;                  // likewise
  std::optional<StepImages> images_;         // of a model with a tower
  std::vector<EmbeddedRows> embedded_rows_;  // of the newest step, from both
  std::optional<StepSampler> sampler_;       // of a model that generates
  std::unique_ptr<Pooler> pooler_;           // of one that pools
  std::optional<StepDrafts> drafts_;
  std::unique_ptr<AdapterPlaces> places_;  // of a device
  DecodeGraphs graphs_, adapted_graphs_;   // of steps without adapters and with them

  std::array<StepInFlight, kMaxStepsInFlight> steps_;
  StepInFlight* newest_ = &steps_[0];
  // The accepted drafts of steps that are finished, in turns: RankGroup::TurnOf.
  std::array<StepInFlight, kMaxStepsInFlight> taken_;
  ResultQueue results_;
  int64_t num_overlapped_ = 0;
  const bool has_states_;  // a layer of the model keeps a state, as recurrent ones do
  const bool has_adapters_;
  const int64_t hidden_size_, num_token_types_;
  RankGroup* ranks_;
  const bool sends_images_;  // what their tokens have goes to a device, with the step's numbers
  bool sees_ahead_ = false;  // tokens of the newest step do, on such a device
  bool reads_ring_;          // the ranks share memory, in which the step's numbers are
  bool runs_late_;           // the last stage of several
  bool shares_kv_cache_;
  const std::vector<int64_t> graph_sizes_;
  StepClock clock_;
  SystemClock host_clock_;  // of the steps' seconds
};

}  // namespace tandem
