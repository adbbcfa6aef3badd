#include "engine_core/executor/device_sampling.h"

#include <algorithm>

#include "engine_core/sampling/sampler.h"

namespace tandem {
namespace {

// On the device each biased token has one addition of its own.
bool HasTwice(std::vector<std::pair<TokenId, float>> logit_bias) {
  const auto by_token = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::sort(logit_bias.begin(), logit_bias.end(), by_token);
  return std::adjacent_find(logit_bias.begin(), logit_bias.end(), [](const auto& a, const auto& b) {
           return a.first == b.first;
         }) != logit_bias.end();
}

}  // namespace

bool DrawsOnDevice(const SamplingConfig& config) {
  const bool has_long_words = std::any_of(config.bad_words.begin(), config.bad_words.end(),
                                          [](const auto& word) { return word.size() != 1; });
  const bool tells_top_raw =
      config.logprobs_mode == LogprobsMode::kRawLogprobs && config.logprob_token_ids.empty();
  const size_t num_edits =
      config.min_tokens_mask.size() + config.bad_words.size() + config.logit_bias.size();
  return !has_long_words && num_edits <= kMaxDeviceEdits && !HasTwice(config.logit_bias) &&
         (config.num_logprobs < 0 || (tells_top_raw && config.num_logprobs <= kMaxDeviceLogprobs));
}

DeviceAdmission DeviceAdmissionOf(const SamplingConfig& config, size_t vocab_size,
                                  std::span<const TokenId> token_ids, int32_t num_prompt_tokens,
                                  std::vector<TokenId>* banned_token_ids) {
  banned_token_ids->clear();
  for (const std::vector<TokenId>& word : config.bad_words) banned_token_ids->push_back(word[0]);
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
                        .is_greedy = config.is_greedy() ? 1 : 0};
  admission.min_tokens_mask = config.min_tokens_mask;
  admission.banned_token_ids = *banned_token_ids;
  admission.allowed_token_ids = config.allowed_token_ids;
  admission.logit_bias = config.logit_bias;
  admission.has_penalties = config.has_penalties();
  admission.token_ids = token_ids;
  admission.num_prompt_tokens = num_prompt_tokens;
  return admission;
}

}  // namespace tandem
