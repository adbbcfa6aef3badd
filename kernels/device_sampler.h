#pragma once

// Draws tokens where the logits are, so that a step brings ids and asked logprobs to the host and
// not rows of the vocabulary. Its reference is engine_core/sampling/sampler.h: the same steps in
// the same order, the same weights to the bit, the same random number for (seed, position), the
// same choice among equals.
// Only sums differ. The host adds floats; here a weight (1 for the likeliest) counts in whole units
// of 2^-43, so that a sum depends on the row alone and not on the order of threads. A token's upper
// end in [0, 1), or a nucleus' mass, moves by at most kDeviceShareError for it: where the random
// number or top_p is nearer than that to such a boundary, the two may take the neighbouring token.
// Thread: engine loop. Ownership: parameters, masks and token counts of each slot stay on the
// device from Admit on; it goes away before its backend.
// What exceeds the limits below is drawn on the host, from a copied row.
// Failure: memory, when it is made. NaN and infinity in a row are DrawnToken::num_nans.

#include <cstdint>
#include <span>
#include <utility>

#include "common/ids.h"
#include "kernels/tensor.h"

namespace tandem {

// Half of it is the host's: lanes of 16 float additions in blocks of its rows.
constexpr double kDeviceShareError = 2e-6;
constexpr int32_t kMaxDeviceLogprobs = 32;  // besides the drawn token's
constexpr size_t kMaxDeviceEdits = 1024;    // masked or biased tokens of a request

struct DeviceSamplerLimits {
  int64_t num_slots = 0;  // requests at a time
  int64_t vocab_size = 0;
  int64_t max_logits_rows = 0;  // of one Draw
  int64_t max_tokens = 0;       // of a request
};

// How one request draws: SamplingConfig's numbers, resolved for the vocabulary.
struct DeviceSampling {
  uint64_t seed = 0;
  float temperature = 1;
  int32_t top_k = 0;  // 0: off
  float top_p = 1;    // >= 1: off
  float min_p = 0;    // 0: off
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int32_t min_tokens = 0;
  int32_t num_logprobs = -1;  // raw ones; < 0: none wanted
  int32_t is_greedy = 0;
};

struct DeviceAdmission {
  DeviceSampling sampling;
  std::span<const TokenId> min_tokens_mask;    // banned while fewer than min_tokens were output
  std::span<const TokenId> banned_token_ids;   // always
  std::span<const TokenId> allowed_token_ids;  // empty: all
  std::span<const std::pair<TokenId, float>> logit_bias;  // each token once
  bool has_penalties = false;
  std::span<const TokenId> token_ids;  // prompt and outputs; counted for penalties
  int32_t num_prompt_tokens = 0;
};

// One token to draw.
struct DrawRow {
  int32_t logits_row = 0;
  int32_t slot = 0;
  int32_t position = 0;     // of the drawn token in the request
  int32_t num_outputs = 0;  // before it
};

struct DrawnToken {
  TokenId token_id = 0;  // < 0: no token is left that may be drawn
  int32_t num_nans = 0;  // > 0: nothing was drawn
  int32_t rank = 0;      // with logprobs: tokens at least as probable, from 1
  int32_t num_logprobs = -1;
};

class DeviceSampler {
 public:
  virtual ~DeviceSampler() = default;

  // Before the first Draw of a request in this slot. REQUIRES: at most kMaxDeviceEdits masked and
  // biased tokens, at most kMaxDeviceLogprobs logprobs.
  virtual void Admit(int32_t slot, const DeviceAdmission& admission) = 0;

  // Draws rows.size() tokens of logits [R, V] f32, which stay as they are; counts them for their
  // slots' penalties. Their results are numbers `first` onwards of the step.
  virtual void Draw(const Tensor& logits, std::span<const DrawRow> rows, int64_t first) = 0;

  // Puts a copy of the first `count` results of the step to the host behind its last Draw: once a
  // step. The Draws that follow are the next step's; two steps' copies may be under way.
  virtual void StartFetch(int64_t count) = 0;
  // Waits for the oldest of these copies.
  virtual void FinishFetch() = 0;
  // Of the last FinishFetch. Logprobs: the drawn token, then the top ones; 1 + num_logprobs of
  // them.
  virtual const DrawnToken& drawn(int64_t i) const = 0;
  virtual std::span<const TokenId> logprob_token_ids(int64_t i) const = 0;
  virtual std::span<const float> logprobs(int64_t i) const = 0;

  // [num_slots] i32 on the device: the token that each slot has drawn last.
  virtual const Tensor& token_ids() const = 0;
  // token_ids[t] = the token that slot drawn_by[t] has drawn last, where that is a slot (>= 0): an
  // input of the next step that never was on the host. Both [T] i32 on the device.
  virtual void PutTokens(const Tensor& token_ids, const Tensor& drawn_by) = 0;
};

}  // namespace tandem
