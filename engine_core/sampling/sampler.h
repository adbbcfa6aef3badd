#pragma once

// Samples one token from one row of logits. Order of the steps (vLLM V1's): token mask, raw
// logprobs, allowed ids, bad words, min tokens, logit bias, penalties, then greedy or temperature,
// min_p, top_k, top_p, softmax, draw. Masks are -infinity, so a later bias brings nothing back. The
// processed modes take logprobs from the row as it is before the softmax instead. A token mask is
// part of the row for all modes: vLLM applies a grammar's to the logits before its sampler.
// The draw is a function of (seed, position): not of the batch, of chunking or of a restart.
// Thread: any of the compute pool, each with a SamplerScratch of its own; rows and counts of
// different requests do not overlap.
// Failure: NaN or infinite logits and a row with no token left are a Status for this request only.
// Only the model's own logits must be finite; masks put -infinity into the row later.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/sampling/distribution.h"
#include "engine_core/sampling/logprobs.h"
#include "engine_core/sampling/penalties.h"
#include "kernels/sampling_config.h"

namespace tandem {

struct SampleInput {
  std::span<float> logits;  // overwritten
  const SamplingConfig* config = nullptr;
  const TokenCounts* counts = nullptr;  // used when config->has_penalties()
  std::span<const TokenId> output_ids;  // the request's outputs so far
  std::span<const int32_t> token_mask;  // TokenMaskWords(V) words; empty: all tokens are allowed
  int64_t position = 0;                 // of the sampled token in the request, prompt included
  std::optional<TokenId> given_token;   // the result in place of a draw, scored as if drawn
  // Where logprobs are written; empty when config->num_logprobs < 0.
  LogprobsRow logprobs;
};

struct SampleResult {
  Status status;  // not OK: the request ends with it
  TokenId token_id = 0;
  int64_t num_nans = 0;
};

// Memory that a thread reuses from row to row.
struct SamplerScratch {
  TokenDistribution distribution;
  std::vector<float> reported_logits;  // the row whose logprobs are reported
  std::vector<float> kept;             // logits of allowed tokens
  std::vector<TokenId> heap;

  // Room for rows of vocab_size logits; a step without logprobs allocates nothing afterwards.
  void Reserve(size_t vocab_size);
};

SampleResult SampleToken(const SampleInput& input, SamplerScratch* scratch);

// Ends a request whose logits hold NaN or infinity.
Status NotFiniteError(int64_t num_values);
// Ends a request whose masks leave no token.
Status NoTokenLeftError();

// The steps from allowed ids to penalties, in place.
void ProcessLogits(const SampleInput& input, SamplerScratch* scratch);

// The limits of `config` for a vocabulary of `vocab_size`.
DistributionLimits LimitsOf(const SamplingConfig& config, size_t vocab_size);

}  // namespace tandem
