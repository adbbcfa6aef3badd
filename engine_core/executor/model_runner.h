#pragma once

// The Executor that runs a model: flattens a step's requests into one batch of tokens, plans
// attention and slots once, runs the layers, makes logits only where a token is drawn or a prompt
// logprob is wanted, and samples: on the device where the backend has a sampler and the request is
// no rare kind, else on the host. Only ids and asked logprobs leave it. Where the backend has a
// device of its own, Submit returns once the step is on its way, and decode steps are replayed from
// graphs captured at start, one per padded batch size. The next step may be submitted then: tokens
// that were drawn on the device are its inputs before the host has seen them.
// Thread: engine loop; sampling of different rows runs on the backend's threads.
// Owns: backend, model, KV cache, the persistent batch, all step buffers; everything is allocated
// from the limits before the first step.
// Failure: memory, before the first step. Submit fails for no input; a request's own trouble is
// its RequestResult::status.

#include <array>
#include <memory>
#include <vector>

#include "engine_core/executor/executor.h"
#include "engine_core/executor/input_batch.h"
#include "engine_core/executor/result_queue.h"
#include "engine_core/executor/shared_tensor.h"
#include "engine_core/executor/step_clock.h"
#include "engine_core/executor/step_inputs.h"
#include "engine_core/models/model.h"
#include "engine_core/sampling/scratch_pool.h"
#include "kernels/backend.h"

namespace tandem {

// The part of the cache's shape that the model decides.
KvCacheSpec KvSpecOf(const ModelConfig& config, int32_t block_size, int64_t num_blocks,
                     KvFormat format = KvFormat::kCompute);

AttentionShape AttentionShapeOf(const ModelConfig& config);

struct ModelRunnerOptions {
  ExecutorLimits limits;
  KvFormat kv_format = KvFormat::kCompute;
  int64_t max_logprobs = 20;
  LogprobsMode logprobs_mode = LogprobsMode::kRawLogprobs;
  uint64_t process_seed = 0;
  // Ascending; batches for which decode steps are captured, where the backend can.
  std::vector<int64_t> graph_sizes = {};
};

// What a model has to have room for to run under these limits.
ModelLimits ModelLimitsOf(const ExecutorLimits& limits);

class ModelRunner final : public Executor {
 public:
  // REQUIRES: `model` was loaded over `backend` with ModelLimitsOf limits at least as large.
  static StatusOr<std::unique_ptr<ModelRunner>> Create(std::unique_ptr<Backend> backend,
                                                       std::unique_ptr<Model> model,
                                                       const ModelConfig& config,
                                                       const ModelRunnerOptions& options);

  // Create in its parts, for who sizes the KV cache by what is left: all but the cache, whose
  // num_blocks is not looked at yet; steps of as many tokens as there can be and of ever fewer,
  // after which all memory is taken that steps need, and what a backend chooses when it first meets
  // a size is chosen; the cache, for requests of at most max_model_len tokens; the graphs of
  // options.graph_sizes.
  static StatusOr<std::unique_ptr<ModelRunner>> CreateWithoutCache(
      std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, const ModelConfig& config,
      const ModelRunnerOptions& options);
  Status RunFirstSteps();
  Status AllocateKvCache(int32_t num_blocks, int32_t max_model_len);
  Status CaptureGraphs();
  void DropGraphs() { graphs_.clear(); }

  const ExecutorLimits& limits() const override { return limits_; }
  const Backend& backend() const { return *backend_; }
  int64_t num_graphs() const { return static_cast<int64_t>(graphs_.size()); }
  int64_t num_replays() const { return num_replays_; }
  // Steps that were submitted before the host had the tokens of the one before.
  int64_t num_overlapped() const { return num_overlapped_; }
  // From the next step on, device_times() counts the steps that were collected.
  void StartClock() { clock_.Start(backend_.get()); }
  const DeviceTimes& device_times() const { return clock_.times(); }
  Status Submit(const SchedulerOutput& step) override;
  Status Collect(ModelOutput* result) override;

 private:
  // One row of logits to be made: of which request (index into the step), at which flat position.
  struct LogitsRow {
    int32_t request_idx = 0;
    int32_t token_row = 0;
    int32_t prompt_row = -1;  // row of the request's prompt_logprobs; -1: a token is drawn
    int64_t num_nans = 0;     // found in a prompt's row
    bool on_device = false;   // drawn or told of there
  };
  // What sampling yielded of one request.
  struct Drawn {
    SampleResult result;
    std::optional<wire::LogprobsRows> logprobs;
    bool on_host = false;              // the host draws its token
    bool has_prompt_logprobs = false;  // they are complete with this token
  };
  // A step that was submitted, until its result is there.
  struct StepInFlight {
    ModelOutput* result = nullptr;  // null: there is none
    std::vector<ScheduledRequest> requests;
    std::vector<LogitsRow> logits_rows;
    std::vector<Drawn> drawn;   // of each request
    int32_t max_logprobs = -1;  // of a row on the device
    bool has_device_rows = false;
    bool has_host_rows = false;
    StepClock::Step times;
  };

  ModelRunner(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
              const ModelConfig& config, const ModelRunnerOptions& options);
  Status Allocate();

  // The parts of a step, in their order: until it is on its way,
  void TakeIn(const SchedulerOutput& step);
  void LayOut(const SchedulerOutput& step);
  void AddLogitsRows(const ScheduledRequest& request, int32_t request_idx, int32_t first_row);
  void Flatten();
  void Pad(int64_t begin, int64_t end);
  void RunModel();
  // Rows of logits that are made at a time, from `begin` on; those that stay on the device are
  // drawn there.
  void RunLogits(int64_t begin);
  void FetchDrawn();
  void AppendTokens();
  // and from its logits to its result.
  void FinishStep(StepInFlight* step);
  void FillOnHost(int64_t begin);
  void TakeDrawn(StepInFlight* step);
  void FoldBack(StepInFlight* step);

  // Whether the newest step has to be finished before this one is taken in: the host draws inputs
  // of it, or the row goes away in which a result is gathered.
  bool IsWaitedFor(const SchedulerOutput& step) const;
  // Whether each request runs one token and draws from it, so that a graph may serve.
  bool IsUniformDecode() const;
  void BeginInputs(int64_t num_tokens, int64_t num_requests, int64_t num_logits_rows);
  void SendInputs();
  // A step of requests that exist nowhere: they see the null block and write nothing.
  void BeginEmptyStep(int64_t num_tokens, int64_t tokens_per_request);

  SamplingRow SamplingRowOf(const LogitsRow& logits_row) const;
  void FillRow(std::span<float> logits, LogitsRow* row, SamplerScratch* scratch);
  // Where the logprobs of a prompt's token go.
  LogprobsRow PromptLogprobs(RequestSlot slot, int32_t prompt_row);
  void Draw(RequestSlot slot, std::span<float> logits, Drawn* drawn, SamplerScratch* scratch);

  ExecutorLimits limits_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceSampler> sampler_;  // null: the host draws
  KvCacheSpec kv_spec_;
  AttentionShape attention_shape_;
  std::unique_ptr<KvCache> kv_cache_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<AttentionPlan> plan_;
  InputBatch batch_;
  int64_t max_logits_rows_ = 0;

  // The newest step's arrays.
  StepInputs inputs_;
  SharedTensor logits_;     // [max_logits_rows, V] f32
  int64_t num_tokens_ = 0;  // of this step
  int64_t max_blocks_ = 0;  // of a request of this step
  std::vector<int32_t> query_start_;
  std::vector<int32_t> context_len_;
  std::vector<int64_t> host_rows_;  // of a chunk

  std::array<StepInFlight, kMaxStepsInFlight> steps_;
  StepInFlight* step_ = &steps_[0];  // the newest
  ResultQueue results_;

  std::vector<int64_t> graph_sizes_;
  std::vector<std::unique_ptr<CapturedOps>> graphs_;  // of each size; goes away before the backend
  std::optional<size_t> graph_;                       // of this step
  int64_t num_replays_ = 0;
  int64_t num_overlapped_ = 0;
  StepClock clock_;

  ScratchPool scratch_;
};

}  // namespace tandem
