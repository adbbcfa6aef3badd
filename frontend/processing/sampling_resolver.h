#pragma once

// A request's sampling fields → complete, validated sampling parameters: the server's defaults
// applied, ids in the vocabulary, stop tokens and bad words as token ids. max_tokens is left to the
// input processor, which has the prompt.
// Thread: const methods on any thread. Borrows the config and the tokenizer.
// Failure: INVALID_ARGUMENT with the field as param.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/openai/generation_request.h"
#include "frontend/processing/input_config.h"
#include "frontend/text/tokenizer.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class SamplingResolver {
 public:
  SamplingResolver(const InputConfig* config, const Tokenizer* tokenizer);

  // logprobs: how many per generated token, when requested.
  StatusOr<wire::SamplingParams> Resolve(const GenerationRequest& request,
                                         std::optional<int64_t> logprobs) const;

  // Refuses an id that the model has no embedding for; `field` is the field that contains it.
  Status CheckId(const char* field, int64_t id) const;

  TokenId vocab_size() const { return vocab_size_; }  // the model's, not the tokenizer's
  size_t longest_token_bytes() const { return longest_token_bytes_; }

 private:
  Status SetDistribution(const GenerationRequest& request, wire::SamplingParams* out) const;
  Status SetLogprobs(const GenerationRequest& request, std::optional<int64_t> logprobs,
                     wire::SamplingParams* out) const;
  Status SetPromptScores(const GenerationRequest& request, wire::SamplingParams* params) const;
  Status SetTokenRules(const GenerationRequest& request, wire::SamplingParams* out) const;
  Status SetGivenOutputs(const GenerationRequest& request, wire::SamplingParams* params) const;
  Status AddStopTokens(const GenerationRequest& request, wire::SamplingParams* params) const;
  Status AddBadWords(const GenerationRequest& request, wire::SamplingParams* params) const;
  Status CheckLogprobs(const char* field, int64_t num) const;

  const InputConfig& config_;
  const Tokenizer& tokenizer_;
  TokenId vocab_size_;
  std::optional<TokenId> eos_id_;
  std::vector<TokenId> other_eos_ids_;
  size_t longest_token_bytes_ = 1;
};

}  // namespace tandem
