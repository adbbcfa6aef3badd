#pragma once

// Samples the rows of logits that a step makes: on the device, as ops of the step itself, where the
// backend has a sampler and the request fits it (FitsDeviceSampler); else on the host, from copied
// rows. Then folds the results of both into the step's ModelOutput.
// A request's drafts are accepted here: its rows are sampled in order, each as if the tokens before
// it were all there were, until a sampled token is not the draft. On a device that is a part of the
// op; the host reads all rows at once.
// Token masks reach both samplers through TokenMasks.
// Thread: engine loop; rows of different requests are sampled on the backend's threads.
// Owns: the device's sampler, the logits, the host's scratch. Borrows backend and batch, which
// outlive it. After Create only logprobs are allocated.
// Failure: memory, in Create. A failure of one request (NaN, no token left) is its
// RequestResult::status.

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

// The results of one step so far.
struct StepSamples {
  struct Request {
    SampleResult result;
    std::optional<wire::LogprobsRows> logprobs;
    int32_t num_tokens = 0;   // known to the host: accepted drafts and the one after them
    bool is_settled = false;  // its further rows come after a rejected draft
    bool is_known = false;    // its tokens are in the batch before the next step is laid out
    bool has_prompt_logprobs = false;  // they are complete with this token
    std::vector<TokenId> forced;       // what follows the token
    int32_t num_refused_drafts = 0;    // by its masks: the first of them, and those after it
  };
  std::vector<Request> requests;  // of each of StepLayout::requests
  size_t mask_set = 0;            // where the step's token masks are
  // Of each of StepLayout::logits_rows: values that are not finite, in a prompt's row.
  std::vector<int64_t> prompt_nans;
};

class StepSampler {
 public:
  // A step has at most max_rows rows of logits; max_logits_rows are made at a time.
  static StatusOr<StepSampler> Create(Backend* backend, int64_t max_logits_rows, int64_t max_rows,
                                      InputBatch* batch);

  // ---- before the step's ops ----
  // Before a request's first step, once it is in the batch.
  void Admit(RequestSlot slot);
  // REQUIRES: earlier steps with rows of the host are folded; all are, if verifies_on_device().
  void Begin(const StepLayout& layout, StepSamples* samples);
  // Waits for the step's masks and takes them in: before the ops that sample on the device, else
  // before SampleRest.
  void TakeMasks(const SchedulerOutput& step, StepSamples* samples);
  // Writes the step's SamplingRows. sampling_rows: [layout.num_logits_rows(), kSamplingRowWidth] in
  // host memory.
  void FillRows(const StepLayout& layout, const Tensor& sampling_rows) const;

  // ---- ops ----
  // Replaces the inputs that only the device knows.
  void FillSampledInputs(const Tensor& token_ids);
  int64_t max_logits_rows() const { return logits_.device().rows(); }
  // Where the model writes `count` rows of logits.
  Tensor logits(int64_t count) const { return logits_.device().Rows(0, count); }
  // Samples the device's rows among these logits, the step's rows from `first` on.
  void SampleOnDevice(const Tensor& logits, const Tensor& sampling_rows, int64_t first);

  // ---- after them ----
  // Whether drafts are verified on a device: then the host knows only after TakeFetched how many
  // tokens a request has.
  bool verifies_on_device() const { return device_ != nullptr && takes_drafts_; }
  // Starts the copy of the device's results, after the ops so far.
  void StartFetch(const StepLayout& layout);
  // Appends tokens that the host does not know yet, and what they force, so that the next step can
  // name them.
  void AppendUnknownTokens(const StepLayout& layout, const StepSamples& samples);
  // Samples the host's rows, of the logits made last, the step's rows from `first` on.
  void SampleOnHost(const StepLayout& layout, int64_t first, StepSamples* samples);
  // Waits for the copy and reads it; appends the tokens of verified drafts to the batch.
  void TakeFetched(const StepLayout& layout, StepSamples* samples);
  // Writes the step's result, and appends the tokens that the host sampled to the batch.
  void Fold(const StepLayout& layout, StepSamples* samples, ModelOutput* result);

 private:
  StepSampler(Backend* backend, InputBatch* batch);

  // Rows made last that one thread samples: a row of a prompt, or those of a request's tokens.
  struct Run {
    int64_t first = 0, count = 0;
  };
  // num_drafts: of the request, before the row.
  SamplingRow SamplingRowOf(const StepLayout& layout, size_t row_idx, int32_t num_drafts) const;
  void AddToRuns(const StepLayout& layout, int64_t row_idx);
  void SampleRow(const StepLayout& layout, size_t row_idx, std::span<float> logits,
                 StepSamples* samples, SamplerScratch* scratch);
  void SampleNext(RequestSlot slot, const LogitsRow& row, std::span<float> logits,
                  StepSamples::Request* sampled, SamplerScratch* scratch);
  SampleResult SampleToken(RequestSlot slot, const LogitsRow& row, std::span<float> logits,
                           StepSamples::Request* sampled, SamplerScratch* scratch);
  void TakeToken(RequestSlot slot, SampleResult result, StepSamples::Request* sampled);
  void TakeRow(const StepLayout& layout, size_t row_idx, StepSamples* samples);
  void AppendForced(RequestSlot slot, const StepSamples::Request& sampled);
  TokenId FoldRequest(const ScheduledRequest& request, StepSamples::Request* sampled,
                      RequestResult* extra);
  LogprobsRow PromptLogprobs(RequestSlot slot, int32_t prompt_row);

  Backend* backend_;
  InputBatch* batch_;
  std::unique_ptr<DeviceSampler> device_;  // null: memory is the host's, and so is all sampling
  SharedTensor logits_;                    // [max_logits_rows, V] f32
  bool takes_drafts_ = false;
  std::vector<TokenMasks> masks_;  // those of the steps in flight take turns
  size_t next_mask_set_ = 0;
  const TokenMasks* host_masks_ = nullptr;  // of the step that the host samples
  std::unique_ptr<ScratchPool> scratch_;
  std::vector<Run> host_runs_;  // of the host, among the logits made last
};

}  // namespace tandem
