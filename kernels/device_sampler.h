#pragma once

// Samples tokens where the logits are, so that a step brings token ids and the requested logprobs
// to the host, not rows of the vocabulary. Its reference is engine_core/sampling/sampler.h: the
// same steps in the same order, the same weights to the bit, the same random number for
// (seed, position), the same choice among equals.
// Only sums differ. The host adds floats; here a weight (1 for the likeliest) is counted in whole
// units of 2^-43, so that a sum depends on the row alone and not on the order of threads. This
// moves a token's upper end in [0, 1), or the mass of a nucleus, by at most kDeviceShareError:
// where the random number or top_p is closer than that to such a boundary, the two samplers may
// take neighbouring tokens.
// Thread: engine loop. Ownership: parameters, lists, counts and latest tokens of each slot stay on
// the device from Admit on; the sampler must go away before its backend.
// A request that exceeds the limits below is sampled on the host, from a copied row.
// Failure: memory, when the sampler is made. NaN and infinity in a row: SampledToken::num_nans.

#include <cstdint>
#include <span>

#include "common/ids.h"
#include "kernels/sampling_config.h"
#include "kernels/tensor.h"

namespace tandem {

// Half of it is the host's error: lanes of 16 float additions in blocks of its rows.
constexpr double kDeviceShareError = 2e-6;
constexpr int32_t kMaxDeviceLogprobs = 128;  // besides the sampled token's
// Of all lists of a request, see NumDeviceNumbers.
constexpr size_t kMaxDeviceNumbers = 4096;
constexpr size_t kMaxDeviceWordTokens = 256;  // of one bad word
// Fetches that were started and not taken.
constexpr size_t kMaxFetches = 2;

struct DeviceSamplerLimits {
  int64_t num_slots = 0;  // requests at a time
  int64_t vocab_size = 0;
  int64_t max_logits_rows = 0;  // of one call of Sample
  int64_t max_rows = 0;         // of a step
  int64_t max_tokens = 0;       // of a request
};

// How much of kMaxDeviceNumbers a request takes; allowed ids and its tokens do not count.
size_t NumDeviceNumbers(const SamplingConfig& config);

// Whether the request is within the limits above.
bool FitsDeviceSampler(const SamplingConfig& config);

// What is done with one row of logits.
struct SamplingRow {
  int32_t slot = -1;             // < 0: nothing
  int32_t position = 0;          // of the sampled token in its request
  int32_t num_outputs = 0;       // before it
  TokenId scored_token_id = -1;  // >= 0: no token is sampled, this one's logprobs are computed
  int32_t mask_row = -1;         // of the token masks, for a sampled token; < 0: none
  // >= 0: the row counts only if the row before it, of the same slot, has sampled this token.
  TokenId draft_token_id = -1;
};
constexpr int64_t kSamplingRowWidth = sizeof(SamplingRow) / sizeof(int32_t);

constexpr TokenId kRejectedRow = -2;

struct SampledToken {
  // Or the scored token; -1: no token is left that may be sampled; kRejectedRow: the row did not
  // count, and nothing was done.
  TokenId token_id = 0;
  int32_t num_nans = 0;       // > 0: nothing was sampled or scored
  int32_t rank = 0;           // with logprobs: tokens at least as probable, from 1
  int32_t num_logprobs = -1;  // < 0: none
};

struct TokenLogprob {
  TokenId token_id = 0;
  float logprob = 0;
};

class DeviceSampler {
 public:
  virtual ~DeviceSampler() = default;

  // Before the first Sample of a request in this slot. token_ids: prompt and outputs, for penalties
  // and bad words. REQUIRES: FitsDeviceSampler(config).
  virtual void Admit(int32_t slot, const SamplingConfig& config, std::span<const TokenId> token_ids,
                     int32_t num_prompt_tokens) = 0;

  // Samples or scores a token per row of logits [R, V] f32; a sampled token counts for its slot's
  // penalties and bad words. Rows after drafts are sampled in their order, each with the tokens
  // before it counted, also when their calls differ. Results are the step's from number `first` on.
  // rows: [R, kSamplingRowWidth] i32 on the device, SamplingRows. masks: [M, TokenMaskWords(V)] i32
  // on the device. In a row that names a mask, logits of tokens that it does not allow become
  // -infinity; other logits are not changed.
  virtual void Sample(const Tensor& logits, const Tensor& rows, const Tensor& masks,
                      int64_t first) = 0;

  // Puts the copy of the step's first `count` results, with up to max_logprobs logprobs each, after
  // the ops so far. REQUIRES: fewer than kMaxFetches were started and not taken.
  virtual void StartFetch(int64_t count, int32_t max_logprobs) = 0;
  // Waits for the oldest of them.
  virtual void TakeFetched() = 0;
  // Of the fetch that was taken last, until the next StartFetch. Logprobs: those of token_id, then
  // the others; 1 + num_logprobs of them.
  virtual const SampledToken& sampled(int64_t i) const = 0;
  virtual std::span<const TokenLogprob> logprobs(int64_t i) const = 0;

  // Replaces an id < 0 by the token that slot ~id has sampled last: an input that never was on the
  // host. ids: [T] i32.
  virtual void FillSampledTokens(const Tensor& ids) = 0;
};

}  // namespace tandem
