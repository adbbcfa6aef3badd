#pragma once

// Samples the rows of logits that a step makes: on the device, as ops of the step itself, where the
// backend has a sampler and the request is no rare kind; else on the host, from copied rows. Then
// gathers what either has yielded into the step's ModelOutput.
// Drafts are accepted in Fold. Token masks reach both samplers through TokenMasks.
// Thread: engine loop; rows of different requests are sampled on the backend's threads.
// Owns: the device's sampler, the logits, scratch of the host's. Borrows backend and batch, which
// outlive it. Nothing is allocated after Create but for logprobs.
// Failure: memory, in Create. A request's own (NaN, no token left) is its RequestResult::status.

#include <memory>
#include <optional>
#include <vector>

#include "engine_core/executor/input_batch.h"
#include "engine_core/executor/shared_tensor.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/executor/token_masks.h"
#include "engine_core/sampling/scratch_pool.h"
#include "engine_core/scheduler/model_output.h"
#include "kernels/backend.h"

namespace tandem {

// What sampling has yielded of one step so far.
struct StepSamples {
  struct Request {
    SampleResult result;
    std::optional<wire::LogprobsRows> logprobs;
    bool is_on_host = false;           // the host samples its token
    bool has_prompt_logprobs = false;  // they are complete with this token
  };
  std::vector<Request> requests;     // as StepLayout::requests
  std::vector<int64_t> prompt_nans;  // as StepLayout::logits_rows; not finite, in a prompt's row
};

class StepSampler {
 public:
  // Steps have at most max_rows rows of logits, made max_logits_rows at a time.
  static StatusOr<StepSampler> Create(Backend* backend, int64_t max_logits_rows, int64_t max_rows,
                                      InputBatch* batch);

  // ---- before the step's ops ----
  // Before a request's first step, once it is in the batch.
  void Admit(RequestSlot slot);
  // REQUIRES: results of earlier steps that the host samples are folded.
  void Begin(const SchedulerOutput& step, const StepLayout& layout, StepSamples* samples);
  // sampling_rows: [layout.num_logits_rows(), kSamplingRowWidth], where the host writes.
  void FillRows(const StepLayout& layout, const Tensor& sampling_rows) const;

  // ---- ops ----
  // Inputs that the device has sampled itself, in place of what stands for them.
  void FillSampledInputs(const Tensor& token_ids);
  int64_t max_logits_rows() const { return logits_.device().rows(); }
  // Where the model writes `count` rows of logits.
  Tensor logits(int64_t count) const { return logits_.device().Rows(0, count); }
  // Samples the device's rows of these logits, which are the step's from number `first` on.
  void SampleOnDevice(const Tensor& logits, const Tensor& sampling_rows, int64_t first);

  // ---- after them ----
  // Puts the copy of what the device has sampled after the step's ops.
  void StartFetch(const StepLayout& layout);
  // The next step can name this one's tokens before the host knows them.
  void AppendUnknownTokens(const StepLayout& layout);
  // Samples the host's rows among the logits that are there now, the step's from `first` on.
  void SampleOnHost(const StepLayout& layout, int64_t first, StepSamples* samples);
  // Waits for the copy, and takes it in.
  void TakeFetched(const StepLayout& layout, StepSamples* samples);
  // Into the result, and tokens that the host has sampled into the batch.
  void Fold(const StepLayout& layout, StepSamples* samples, ModelOutput* result);

 private:
  StepSampler(Backend* backend, InputBatch* batch);

  void SampleRow(const StepLayout& layout, size_t row_idx, std::span<float> logits,
                 StepSamples* samples, SamplerScratch* scratch);
  void SampleToken(RequestSlot slot, const LogitsRow& row, std::span<float> logits,
                   StepSamples::Request* sampled, SamplerScratch* scratch);
  void TakeRow(const StepLayout& layout, size_t row_idx, StepSamples* samples);
  TokenId FoldRequest(const ScheduledRequest& request, StepSamples::Request* sampled,
                      RequestResult* extra);
  LogprobsRow PromptLogprobs(RequestSlot slot, int32_t prompt_row);

  Backend* backend_;
  InputBatch* batch_;
  std::unique_ptr<DeviceSampler> device_;  // null: memory is the host's, and so is all sampling
  SharedTensor logits_;                    // [max_logits_rows, V] f32
  TokenMasks masks_;
  std::unique_ptr<ScratchPool> scratch_;
  std::vector<int64_t> host_rows_;  // of the logits that are there now
};

}  // namespace tandem
