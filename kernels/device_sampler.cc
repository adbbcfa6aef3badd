#include "kernels/device_sampler.h"

#include <algorithm>

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

size_t NumDeviceNumbers(const SamplingConfig& config) {
  size_t count = config.min_tokens_mask.size() + 2 * config.logit_bias.size() +
                 config.logprob_token_ids.size();
  for (const std::vector<TokenId>& word : config.bad_words) count += 1 + word.size();
  return count;
}

bool FitsDeviceSampler(const SamplingConfig& config) {
  const auto is_long = [](const auto& word) { return word.size() > kMaxDeviceWordTokens; };
  return NumDeviceNumbers(config) <= kMaxDeviceNumbers &&
         std::ranges::none_of(config.bad_words, is_long) && !HasTwice(config.logit_bias) &&
         config.num_logprobs <= kMaxDeviceLogprobs &&
         config.num_prompt_logprobs <= kMaxDeviceLogprobs;
}

}  // namespace tandem
