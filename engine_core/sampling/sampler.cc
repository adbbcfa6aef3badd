#include "engine_core/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "common/random.h"
#include "engine_core/sampling/row_math.h"
#include "proto_msgpack/no_token_left.h"

namespace tandem {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Masks all other tokens; `kept` is scratch.
void MaskAllBut(std::span<const TokenId> allowed, std::span<float> logits,
                std::vector<float>* kept) {
  kept->clear();
  for (const TokenId id : allowed) kept->push_back(logits[static_cast<size_t>(id)]);
  std::fill(logits.begin(), logits.end(), kMasked);
  for (size_t i = 0; i < allowed.size(); ++i) {
    logits[static_cast<size_t>(allowed[i])] = (*kept)[i];
  }
}

void MaskBadWords(const SampleInput& input) {
  for (const std::vector<TokenId>& word : input.config->bad_words) {
    const size_t prefix = word.size() - 1;
    if (prefix > input.output_ids.size()) continue;
    const auto tail = input.output_ids.last(prefix);
    if (std::equal(tail.begin(), tail.end(), word.begin())) {
      input.logits[static_cast<size_t>(word.back())] = kMasked;
    }
  }
}

// Applies temperature and limits, as the distribution that was built did.
void LimitLogits(const SamplingConfig& config, SamplerScratch* scratch) {
  std::vector<float>& logits = scratch->reported_logits;
  scratch->distribution.MaskDropped(LimitsOf(config, logits.size()), logits);
  for (float& x : logits) x /= config.temperature;
}

void FillLogprobs(const SamplingConfig& config, TokenId chosen, const LogprobsRow& out,
                  SamplerScratch* scratch) {
  const bool normalized = IsNormalized(config.logprobs_mode);
  if (!config.logprob_token_ids.empty()) {
    FillLogprobsOf(scratch->reported_logits, normalized, chosen, config.logprob_token_ids, out);
  } else {
    FillTopLogprobs(scratch->reported_logits, normalized, chosen, out, &scratch->heap);
  }
}

}  // namespace

void SamplerScratch::Reserve(size_t vocab_size) {
  distribution.Reserve(vocab_size);
  reported_logits.reserve(vocab_size);
  kept.reserve(vocab_size);
}

DistributionLimits LimitsOf(const SamplingConfig& config, size_t vocab_size) {
  DistributionLimits limits;
  limits.temperature = config.temperature;
  limits.min_p = config.min_p;
  limits.top_k = static_cast<size_t>(std::max(config.top_k, 0)) < vocab_size ? config.top_k : 0;
  limits.top_p = config.top_p;
  return limits;
}

void ProcessLogits(const SampleInput& input, SamplerScratch* scratch) {
  const SamplingConfig& config = *input.config;
  if (!config.allowed_token_ids.empty()) {
    MaskAllBut(config.allowed_token_ids, input.logits, &scratch->kept);
  }
  MaskBadWords(input);
  if (static_cast<int64_t>(input.output_ids.size()) < config.min_tokens) {
    for (const TokenId id : config.min_tokens_mask) {
      input.logits[static_cast<size_t>(id)] = kMasked;
    }
  }
  for (const auto& [id, bias] : config.logit_bias) input.logits[static_cast<size_t>(id)] += bias;
  if (config.has_penalties()) {
    input.counts->Apply(config.repetition_penalty, config.frequency_penalty,
                        config.presence_penalty, input.logits);
  }
}

Status NotFiniteError(int64_t num_values) {
  return InternalError("the model's logits hold " + std::to_string(num_values) +
                       " values that are not finite");
}

Status NoTokenLeftError() {
  return InvalidArgumentError(std::string(wire::kNoTokenLeft) +
                              ": the grammar, min_tokens, allowed_token_ids, bad_words and "
                              "logit_bias of the request together exclude all");
}

SampleResult SampleToken(const SampleInput& input, SamplerScratch* scratch) {
  const SamplingConfig& config = *input.config;
  SampleResult result;
  RowMax best = FindMax(input.logits);
  result.num_nans = best.num_nans;
  if (result.num_nans > 0) {
    result.status = NotFiniteError(result.num_nans);
    return result;
  }
  if (!input.token_mask.empty() && MaskRow(input.token_mask, input.logits)) {
    // Mostly it is allowed, and the row need not be read once more.
    const bool is_allowed = input.logits[static_cast<size_t>(best.argmax)] != kMasked;
    if (!is_allowed) best = FindMax(input.logits);
  }
  const bool reports = config.num_logprobs >= 0, processed = IsProcessed(config.logprobs_mode);
  if (reports && !processed) {
    scratch->reported_logits.assign(input.logits.begin(), input.logits.end());
  }
  if (config.has_processors()) {
    ProcessLogits(input, scratch);
    best = FindMax(input.logits);
  }
  if (!std::isfinite(best.max)) {
    result.status = NoTokenLeftError();
    return result;
  }
  if (config.is_greedy()) {
    result.token_id = static_cast<TokenId>(best.argmax);
  } else {
    scratch->distribution.Build(input.logits, best.max, LimitsOf(config, input.logits.size()));
    result.token_id =
        scratch->distribution.Draw(UniformAt(config.seed, static_cast<uint64_t>(input.position)));
  }
  if (input.given_token) result.token_id = *input.given_token;
  if (reports && processed) {
    scratch->reported_logits.assign(input.logits.begin(), input.logits.end());
    if (!config.is_greedy()) LimitLogits(config, scratch);
  }
  if (reports) FillLogprobs(config, result.token_id, input.logprobs, scratch);
  return result;
}

}  // namespace tandem
