#pragma once

// Draws tokens where the logits are, so that a step brings ids and asked logprobs to the host and
// not rows of the vocabulary. Its reference is engine_core/sampling/sampler.h: the same steps in
// the same order, the same weights to the bit, the same random number for (seed, position), the
// same choice among equals.
// Only sums differ. The host adds floats; here a weight (1 for the likeliest) counts in whole units
// of 2^-43, so that a sum depends on the row alone and not on the order of threads. A token's upper
// end in [0, 1), or a nucleus' mass, moves by at most kDeviceShareError for it: where the random
// number or top_p is nearer than that to such a boundary, the two may take the neighbouring token.
// Thread: engine loop. Ownership: parameters, lists, counts and last tokens of each slot stay on
// the device from Admit on; it goes away before its backend.
// What exceeds the limits below is drawn on the host, from a copied row.
// Failure: memory, when it is made. NaN and infinity in a row are DrawnToken::num_nans.

#include <cstdint>
#include <span>

#include "common/ids.h"
#include "kernels/sampling_config.h"
#include "kernels/tensor.h"

namespace tandem {

// Half of it is the host's: lanes of 16 float additions in blocks of its rows.
constexpr double kDeviceShareError = 2e-6;
constexpr int32_t kMaxDeviceLogprobs = 128;  // besides the chosen token's
// Of all lists of a request, see NumDeviceNumbers.
constexpr size_t kMaxDeviceNumbers = 4096;
constexpr size_t kMaxDeviceWordTokens = 256;  // of one bad word
// Fetches that have begun and whose results nobody has taken.
constexpr size_t kMaxFetches = 2;

struct DeviceSamplerLimits {
  int64_t num_slots = 0;  // requests at a time
  int64_t vocab_size = 0;
  int64_t max_logits_rows = 0;  // of one Draw
  int64_t max_rows = 0;         // of a step
  int64_t max_tokens = 0;       // of a request
};

// How much of kMaxDeviceNumbers a request takes; allowed ids and its tokens do not count.
size_t NumDeviceNumbers(const SamplingConfig& config);

// Whether the limits above leave the request to the device.
bool FitsDeviceSampler(const SamplingConfig& config);

// What is to become of one row of logits.
struct SamplingRow {
  int32_t slot = -1;           // < 0: nothing
  int32_t position = 0;        // of the drawn token in the request
  int32_t num_outputs = 0;     // before it
  TokenId told_token_id = -1;  // >= 0: no token is drawn, the logprobs of this one are told
};
constexpr int64_t kSamplingRowWidth = sizeof(SamplingRow) / sizeof(int32_t);

struct DrawnToken {
  TokenId token_id = 0;  // < 0: no token is left that may be drawn
  int32_t num_nans = 0;  // > 0: nothing was drawn
  int32_t rank = 0;      // with logprobs: tokens at least as probable, from 1
  int32_t num_logprobs = -1;
};

struct TokenLogprob {
  TokenId token_id = 0;
  float logprob = 0;
};

class DeviceSampler {
 public:
  virtual ~DeviceSampler() = default;

  // Before the first Draw of a request in this slot. token_ids: prompt and outputs, for penalties
  // and bad words. REQUIRES: FitsDeviceSampler(config).
  virtual void Admit(int32_t slot, const SamplingConfig& config, std::span<const TokenId> token_ids,
                     int32_t num_prompt_tokens) = 0;

  // Draws a token from each row of logits [R, V] f32, which stay as they are, or tells of one; a
  // drawn token counts for its slot's penalties and bad words. rows: [R, kSamplingRowWidth] i32 on
  // the device, SamplingRows. Their results are numbers `first` onwards of the step.
  virtual void Draw(const Tensor& logits, const Tensor& rows, int64_t first) = 0;

  // Puts the copy of the first `count` results of the step, with up to so many logprobs, before the
  // ops that come after it. REQUIRES: fewer than kMaxFetches have begun and are not taken.
  virtual void StartFetch(int64_t count, int32_t max_logprobs) = 0;
  // Waits for the oldest of them.
  virtual void TakeFetched() = 0;
  // Of the fetch that was taken last, until the next StartFetch. Logprobs: the drawn token, then
  // the others; 1 + num_logprobs of them.
  virtual const DrawnToken& drawn(int64_t i) const = 0;
  virtual std::span<const TokenLogprob> logprobs(int64_t i) const = 0;

  // An id < 0 becomes the token that slot ~id has drawn last: an input that never was on the host.
  // ids: [T] i32.
  virtual void FillDrawn(const Tensor& ids) = 0;
};

}  // namespace tandem
