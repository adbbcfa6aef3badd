#include "engine_core/executor/device_sampling.h"

#include <algorithm>

#include "engine_core/sampling/sampler.h"

namespace tandem {
namespace {

// On the device each biased token has one addition of its own.
bool HasTwice(std::span<const std::pair<TokenId, float>> logit_bias) {
  std::vector<TokenId> ids;
  for (const auto& [id, bias] : logit_bias) ids.push_back(id);
  std::ranges::sort(ids);
  return std::ranges::adjacent_find(ids) != ids.end();
}

}  // namespace

DeviceAdmission DeviceAdmissionOf(const SamplingConfig& config, int32_t num_prompt_logprobs,
                                  size_t vocab_size) {
  const DistributionLimits limits = LimitsOf(config, vocab_size);
  DeviceAdmission admission;
  admission.sampling = {.seed = config.seed,
                        .temperature = limits.temperature,
                        .top_k = std::max(limits.top_k, 0),
                        .top_p = limits.top_p,
                        .min_p = std::max(limits.min_p, 0.0f),
                        .repetition_penalty = config.repetition_penalty,
                        .frequency_penalty = config.frequency_penalty,
                        .presence_penalty = config.presence_penalty,
                        .min_tokens = config.min_tokens,
                        .num_logprobs = config.num_logprobs,
                        .num_prompt_logprobs = num_prompt_logprobs,
                        .tells_normalized = IsNormalized(config.logprobs_mode) ? 1 : 0,
                        .tells_processed = IsProcessed(config.logprobs_mode) ? 1 : 0,
                        .is_greedy = config.is_greedy() ? 1 : 0};
  admission.min_tokens_mask = config.min_tokens_mask;
  admission.bad_words = config.bad_words;
  admission.logit_bias = config.logit_bias;
  admission.logprob_token_ids = config.logprob_token_ids;
  admission.allowed_token_ids = config.allowed_token_ids;
  admission.has_penalties = config.has_penalties();
  return admission;
}

bool DrawsOnDevice(const DeviceAdmission& admission) {
  const auto is_long = [](const auto& word) { return word.size() > kMaxDeviceWordTokens; };
  return NumNumbers(admission) <= kMaxDeviceNumbers &&
         std::ranges::none_of(admission.bad_words, is_long) && !HasTwice(admission.logit_bias) &&
         admission.sampling.num_logprobs <= kMaxDeviceLogprobs &&
         admission.sampling.num_prompt_logprobs <= kMaxDeviceLogprobs;
}

}  // namespace tandem
