#pragma once

// DeviceSampler on a CUDA device: host side of the kernels in sample_token.cu.
// Thread: engine loop. Owns: device memory for every slot and row, pinned staging. Everything goes
// through the backend's stream; only FinishFetch waits (and Admit, for the admission before it).

#include <cuda_runtime.h>

#include <array>
#include <memory>

#include "common/status.h"
#include "kernels/device_sampler.h"

namespace tandem {

// What a kernel knows of a slot.
struct CudaSlotParams {
  DeviceSampling sampling;
  // Edits of the slot, in this order: banned below min_tokens, banned always, biased.
  int32_t num_stops = 0;
  int32_t num_banned = 0;
  int32_t num_biased = 0;
  int32_t has_allowed_mask = 0;
  int32_t has_penalties = 0;
};

struct CudaLogitEdit {
  TokenId token_id = 0;
  float bias = 0;
};

// Pointers are of the device.
struct CudaDrawArgs {
  const float* logits = nullptr;
  int64_t logits_stride = 0;
  int64_t vocab_size = 0;
  const DrawRow* rows = nullptr;           // [blocks]
  const CudaSlotParams* params = nullptr;  // [slots]
  const CudaLogitEdit* edits = nullptr;    // [slots, kMaxDeviceEdits]
  const uint32_t* allowed = nullptr;       // [slots, mask_words], a bit per token
  int64_t mask_words = 0;
  int32_t* counts = nullptr;       // [slots, V]: 2 per output, 1 for tokens of the prompt
  float* processed = nullptr;      // [blocks, V]: logits after masks, bias and penalties
  int32_t* slot_tokens = nullptr;  // [slots]
  DrawnToken* drawn = nullptr;     // [blocks]
  int32_t* logprob_ids = nullptr;  // [blocks, 1 + kMaxDeviceLogprobs]
  float* logprobs = nullptr;       // the same
};

void LaunchPutTokens(int32_t* token_ids, const int32_t* drawn_by, int64_t num_tokens,
                     const int32_t* slot_tokens, cudaStream_t stream);
void LaunchDraw(const CudaDrawArgs& args, int64_t num_rows, cudaStream_t stream);
// Counts a request's tokens; `counts` is its slot's row, zeroed.
void LaunchCountTokens(int32_t* counts, const TokenId* token_ids, int64_t num_prompt_tokens,
                       int64_t num_tokens, cudaStream_t stream);

class CudaSampler final : public DeviceSampler {
 public:
  static StatusOr<std::unique_ptr<DeviceSampler>> Create(const DeviceSamplerLimits& limits,
                                                         cudaStream_t stream);
  ~CudaSampler() override;

  void Admit(int32_t slot, const DeviceAdmission& admission) override;
  void Draw(const Tensor& logits, std::span<const DrawRow> rows, int64_t first) override;
  void StartFetch(int64_t count) override;
  void FinishFetch() override;
  const DrawnToken& drawn(int64_t i) const override;
  std::span<const TokenId> logprob_token_ids(int64_t i) const override;
  std::span<const float> logprobs(int64_t i) const override;
  const Tensor& token_ids() const override { return slot_tokens_; }
  void PutTokens(const Tensor& token_ids, const Tensor& drawn_by) override;

 private:
  CudaSampler(const DeviceSamplerLimits& limits, cudaStream_t stream)
      : limits_(limits), stream_(stream), mask_words_((limits.vocab_size + 31) / 32) {}
  Status Allocate();
  // Of a results tensor, on either side.
  DrawnToken* DrawnOf(const OwnedTensor& results) const;
  int32_t* LogprobIdsOf(const OwnedTensor& results) const;
  float* LogprobsOf(const OwnedTensor& results) const;

  DeviceSamplerLimits limits_;
  cudaStream_t stream_;
  int64_t mask_words_;

  OwnedTensor params_, edits_, allowed_, counts_;  // per slot; CudaDrawArgs tells the shapes
  OwnedTensor processed_;
  OwnedTensor rows_;
  OwnedTensor slot_tokens_;
  OwnedTensor token_ids_;  // [max_tokens] i32, of the request being admitted
  // The drawn tokens of a step, then their logprobs' ids, then their logprobs: one copy's worth.
  OwnedTensor results_;

  // Pinned. An admission's parts lie one after the other; its copies are done when `admitted_` is.
  OwnedTensor host_admission_;
  cudaEvent_t admitted_ = nullptr;
  // What a step has on the host: while one is on its way, the next may be drawn.
  struct HostStep {
    OwnedTensor rows, results;
    cudaEvent_t fetched = nullptr;
    bool has_logprobs = false;  // some row
  };
  std::array<HostStep, 2> steps_;
  size_t drawing_ = 0;  // the step of the next Draw
  size_t fetched_ = 0;  // that of the last FinishFetch
  size_t num_on_their_way_ = 0;
  std::unique_ptr<int32_t[]> slot_logprobs_;  // [slots], the host's memory of num_logprobs
};

}  // namespace tandem
