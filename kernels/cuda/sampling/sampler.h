#pragma once

// DeviceSampler on a CUDA device: the host's side of the kernels in sample_token.cu.
// Thread: engine loop. Owns: device memory of every slot and row, pinned staging. All work goes
// through the backend's stream; only TakeFetched waits (and Admit, once every few megabytes).

#include <cuda_runtime.h>

#include <array>
#include <memory>

#include "common/status.h"
#include "kernels/device_sampler.h"

namespace tandem {

// What the kernels know of a slot.
struct CudaSlotParams {
  SamplingNumbers sampling;  // top_k resolved for the vocabulary
  int32_t num_stops = 0;     // banned below min_tokens
  int32_t num_biased = 0;
  int32_t num_logprob_ids = 0;
  int32_t num_words = 0;
  int32_t has_allowed_mask = 0;
};

// Where each list of a slot begins in its numbers.
struct CudaSlotLists {
  int32_t stops, biased, biases, logprob_ids, word_ends, words;
};
constexpr CudaSlotLists ListsOf(const CudaSlotParams& params) {
  CudaSlotLists lists = {};
  lists.biased = lists.stops + params.num_stops;
  lists.biases = lists.biased + params.num_biased;
  lists.logprob_ids = lists.biases + params.num_biased;
  lists.word_ends = lists.logprob_ids + params.num_logprob_ids;
  lists.words = lists.word_ends + params.num_words;
  return lists;
}

// Of one launch; pointers are the device's.
struct CudaSampleArgs {
  float* logits = nullptr;
  int64_t logits_stride = 0;
  int64_t vocab_size = 0;
  const SamplingRow* rows = nullptr;       // [blocks]
  const CudaSlotParams* params = nullptr;  // [slots]
  const int32_t* numbers = nullptr;        // [slots, kMaxDeviceNumbers], see ListsOf
  const uint32_t* allowed = nullptr;       // [slots, mask_words], a bit per token
  const uint32_t* masks = nullptr;         // [masks, mask_words]
  int64_t mask_words = 0;
  int32_t* counts = nullptr;        // [slots, V]: 2 per output, 1 for tokens of the prompt
  int32_t* recent = nullptr;        // [slots, kMaxDeviceWordTokens]: output n at its place n % size
  float* processed = nullptr;       // [blocks, V]: logits after masks, bias and penalties
  int32_t* slot_tokens = nullptr;   // [slots]
  SampledToken* results = nullptr;  // of block 0; then every kCudaResultWords
  int64_t num_rows = 0;
  bool has_row_before = false;  // whose result is before those of block 0
};

// A result: a SampledToken, then room for the most TokenLogprobs.
constexpr int64_t CudaResultWords(int64_t max_logprobs) { return 4 + 2 * (1 + max_logprobs); }
constexpr int64_t kCudaResultWords = CudaResultWords(kMaxDeviceLogprobs);

void LaunchSample(const CudaSampleArgs& args, int64_t num_rows, cudaStream_t stream);
// Counts a request's tokens; `counts` is its slot's row, zeroed.
void LaunchCountTokens(int32_t* counts, const TokenId* token_ids, int64_t num_prompt_tokens,
                       int64_t num_tokens, cudaStream_t stream);
void LaunchFillSampledTokens(int32_t* ids, int64_t num_ids, const int32_t* slot_tokens,
                             cudaStream_t stream);

class CudaSampler final : public DeviceSampler {
 public:
  static StatusOr<std::unique_ptr<DeviceSampler>> Create(const DeviceSamplerLimits& limits,
                                                         cudaStream_t stream);
  ~CudaSampler() override;

  void Admit(int32_t slot, const SamplingConfig& config, std::span<const TokenId> token_ids,
             int32_t num_prompt_tokens) override;
  void Sample(const Tensor& logits, const Tensor& rows, const Tensor& masks,
              int64_t first) override;
  void StartFetch(int64_t count, int32_t max_logprobs) override;
  void TakeFetched() override;
  const SampledToken& sampled(int64_t i) const override;
  std::span<const TokenLogprob> logprobs(int64_t i) const override;
  void FillSampledTokens(const Tensor& ids) override;

 private:
  struct FetchedResults {
    OwnedTensor memory;  // pinned [max_rows, kCudaResultWords] i32, rows `words` apart
    int64_t words = 0;
    cudaEvent_t done = nullptr;
  };

  CudaSampler(const DeviceSamplerLimits& limits, cudaStream_t stream)
      : limits_(limits), stream_(stream), mask_words_(TokenMaskWords(limits.vocab_size)) {}
  Status Allocate();
  // Pinned memory for an admission, the caller's until the copies that follow are done.
  template <class T>
  T* Stage(size_t count);
  void CopyLists(int32_t slot, const CudaSlotParams& params, const SamplingConfig& config);
  void CopyRecent(int32_t slot, std::span<const TokenId> output_ids);
  void CountTokens(int32_t slot, std::span<const TokenId> token_ids, int32_t num_prompt_tokens);
  const int32_t* ResultOf(int64_t i) const;

  DeviceSamplerLimits limits_;
  cudaStream_t stream_;
  int64_t mask_words_;

  OwnedTensor params_, numbers_, allowed_, counts_, recent_;  // per slot; see CudaSampleArgs
  OwnedTensor slot_tokens_;
  OwnedTensor processed_;
  OwnedTensor token_ids_;  // [max_tokens] i32, of the request being admitted
  OwnedTensor results_;    // [max_rows, kCudaResultWords]

  // Pinned. Admissions stage one after another; when it is full, the next one waits for all copies
  // and starts at the beginning.
  OwnedTensor staging_;
  int64_t staged_words_ = 0;
  cudaEvent_t staged_ = nullptr;

  std::array<FetchedResults, kMaxFetches> fetched_;
  size_t num_started_ = 0, num_taken_ = 0;  // fetch i is in fetched_[i % kMaxFetches]
};

}  // namespace tandem
