#include "engine_core/executor/resolve_sampling.h"

#include <algorithm>
#include <string>

#include "common/random.h"

namespace tandem {
namespace {

// FNV-1a, then mixed with the process's seed: ids that differ in one digit get unrelated seeds.
uint64_t SeedOf(std::string_view request_id, uint64_t process_seed) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : request_id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return MixBits(hash ^ MixBits(process_seed));
}

// The number of top logprobs asked for: -1 (all) becomes the vocabulary, absent -1.
StatusOr<int32_t> ResolveNumLogprobs(std::optional<int32_t> asked, std::string_view name,
                                     const SamplingLimits& limits) {
  if (!asked) return -1;
  const int64_t wanted = *asked == -1 ? limits.vocab_size : *asked;
  const int64_t allowed = limits.max_logprobs == -1 ? limits.vocab_size : limits.max_logprobs;
  if (wanted < 0 || wanted > allowed) {
    return InvalidArgumentError(std::string(name) + " is " + std::to_string(*asked) +
                                ", must be at most " + std::to_string(allowed));
  }
  return static_cast<int32_t>(std::min(wanted, limits.vocab_size));
}

}  // namespace

StatusOr<SamplingConfig> ResolveSampling(const wire::SamplingParams& params,
                                         std::string_view request_id,
                                         const SamplingLimits& limits) {
  SamplingConfig config;
  config.temperature = static_cast<float>(params.temperature);
  config.top_p = static_cast<float>(params.top_p);
  config.top_k = params.top_k;
  config.min_p = static_cast<float>(params.min_p);
  config.repetition_penalty = static_cast<float>(params.repetition_penalty);
  config.frequency_penalty = static_cast<float>(params.frequency_penalty);
  config.presence_penalty = static_cast<float>(params.presence_penalty);
  config.seed =
      params.seed ? static_cast<uint64_t>(*params.seed) : SeedOf(request_id, limits.process_seed);
  config.min_tokens = params.min_tokens;
  if (params.min_tokens > 0) {
    for (const TokenId id : params.all_stop_token_ids) {
      // A stop id may be any number; one outside of the vocabulary needs no ban.
      if (id >= 0 && id < limits.vocab_size) config.min_tokens_mask.push_back(id);
    }
  }
  config.allowed_token_ids = params.allowed_token_ids;
  for (const std::vector<TokenId>& word : params.bad_words_token_ids) {
    if (!word.empty()) config.bad_words.push_back(word);
  }
  for (const auto& [id, bias] : params.logit_bias) {
    config.logit_bias.push_back({id, static_cast<float>(bias)});
  }
  config.logprobs_mode = limits.logprobs_mode;
  config.logprob_token_ids = params.logprob_token_ids;
  ASSIGN_OR_RETURN(config.num_logprobs, ResolveNumLogprobs(params.logprobs, "logprobs", limits));
  ASSIGN_OR_RETURN(config.num_prompt_logprobs,
                   ResolveNumLogprobs(params.prompt_logprobs, "prompt_logprobs", limits));
  if (!config.logprob_token_ids.empty()) {
    config.num_logprobs = static_cast<int32_t>(config.logprob_token_ids.size());
  }
  return config;
}

}  // namespace tandem
