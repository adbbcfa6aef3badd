#pragma once

// How one request samples: resolved once, at admission, from the wire's SamplingParams
// (engine_core/executor/resolve_sampling.h), and read by both samplers, the host's
// (engine_core/sampling/sampler.h) and the device's (device_sampler.h). A value; any thread.

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/ids.h"

namespace tandem {

constexpr float kGreedyBelowTemperature = 1e-5f;

// What the numbers in logprobs are, vLLM's --logprobs-mode. Raw: of the model's logits as they are,
// but for a token mask, which comes first.
// Processed: after masks, bias and penalties and, unless the request is greedy, temperature, min_p,
// top_k and top_p, with -infinity for what cannot be sampled. Prompt positions sample nothing, so
// processed is raw there.
enum class LogprobsMode : uint8_t {
  kRawLogprobs,
  kRawLogits,
  kProcessedLogprobs,
  kProcessedLogits
};

constexpr bool IsProcessed(LogprobsMode mode) {
  return mode == LogprobsMode::kProcessedLogprobs || mode == LogprobsMode::kProcessedLogits;
}
constexpr bool IsNormalized(LogprobsMode mode) {
  return mode == LogprobsMode::kRawLogprobs || mode == LogprobsMode::kProcessedLogprobs;
}

// What has one size for every request: a device keeps it as it is.
struct SamplingNumbers {
  uint64_t seed = 0;  // with the position it decides the draw
  float temperature = 1;
  float top_p = 1;    // >= 1: off
  int32_t top_k = 0;  // <= 0 or >= vocabulary: off
  float min_p = 0;    // 0: off
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int32_t min_tokens = 0;
  int32_t num_logprobs = -1;         // besides the sampled token's; < 0: none at all
  int32_t num_prompt_logprobs = -1;  // besides the prompt token's, at each position; < 0: none
  LogprobsMode logprobs_mode = LogprobsMode::kRawLogprobs;

  constexpr bool is_greedy() const { return temperature < kGreedyBelowTemperature; }
  constexpr bool has_penalties() const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0;
  }
};
static_assert(std::is_trivially_copyable_v<SamplingNumbers>);

struct SamplingConfig : SamplingNumbers {
  std::vector<TokenId> min_tokens_mask;         // banned while fewer than min_tokens were output
  std::vector<TokenId> allowed_token_ids;       // empty: all
  std::vector<std::vector<TokenId>> bad_words;  // the last id is banned after the ids before it
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> logprob_token_ids;  // these instead of the top ones; num_logprobs of them

  // Whether anything changes logits before temperature.
  bool has_processors() const {
    return has_penalties() || min_tokens > 0 || !allowed_token_ids.empty() || !bad_words.empty() ||
           !logit_bias.empty();
  }
};

// A token mask, in the form of xgrammar's: bit i % 32 of word i / 32 allows token i.
constexpr int64_t TokenMaskWords(int64_t vocab_size) { return (vocab_size + 31) / 32; }

}  // namespace tandem
