#pragma once

// The persistent batch: one row per RequestSlot with everything that a step needs to know about a
// request. A row is filled at admission and grows by the tokens and blocks of each step; a steady
// decode step copies only what it sends to the model, and allocates nothing.
// Thread: engine loop; the compute pool reads rows while the loop waits for it.
// Owns: token ids and block tables in two slabs, sized by the limits at start (pages are touched
// only when used), sampling state per row.
// Failure: a request that asks for more than it can have (too many logprobs) keeps that error as
// its row's status, which ends it at its first step.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "engine_core/executor/executor.h"
#include "engine_core/executor/prompt_scores.h"
#include "engine_core/executor/resolve_sampling.h"
#include "engine_core/sampling/penalties.h"

namespace tandem {

class InputBatch {
 public:
  struct Row {
    bool in_use = false;
    Status status;
    int32_t num_tokens = 0;  // prompt and outputs
    int32_t num_drafts = 0;  // guesses that follow them
    int32_t num_prompt_tokens = 0;
    int32_t num_blocks = 0;                              // of each group of layers
    std::shared_ptr<const PromptEmbeddings> embeddings;  // in place of the first tokens; or null
    std::shared_ptr<const RequestImages> images;         // or null
    std::shared_ptr<const AdapterWeights> adapter;       // or null
    SamplingConfig sampling;
    bool samples_on_device = false;
    TokenCounts counts;  // kept only where has_host_counts()
    // Filled chunk by chunk, and then delivered; row p - 1: the prompt's token p. None: not wanted,
    // or delivered already.
    std::optional<wire::LogprobsRows> prompt_logprobs;
    std::optional<PromptScores> prompt_scores;  // likewise
    std::vector<TokenId> given_outputs;         // its first outputs, in place of samples

    bool has_host_counts() const { return sampling.has_penalties() && !samples_on_device; }
  };

  // has_device_sampler: requests that fit it are sampled there.
  InputBatch(const ExecutorLimits& limits, const SamplingLimits& sampling_limits,
             bool has_device_sampler = false);

  void Remove(RequestSlot slot);
  // REQUIRES: the slot is free.
  void Admit(RequestSlot slot, const AdmittedRequest& request, int32_t num_computed_tokens);
  // Those of all groups, place by place.
  void AppendBlocks(RequestSlot slot, std::span<const BlockId> block_ids);
  // Whether the token is the first of the drafts, which it makes an output; else none is left.
  bool AppendToken(RequestSlot slot, TokenId token_id);
  // Guesses of the tokens after a request's own, in place of those before.
  void SetDrafts(RequestSlot slot, std::span<const TokenId> drafts);
  // The same for those of a step: kNoToken keeps the guess that is there, and ends them if there is
  // none.
  void PlaceDrafts(RequestSlot slot, std::span<const TokenId> drafts);
  // A token that the device samples and the host does not know yet: ~slot stands for it until
  // DeviceSampler::FillSampledTokens replaces it.
  void AppendUnknownToken(RequestSlot slot) { AppendToken(slot, ~Index(slot)); }

  Row& row(RequestSlot slot) { return rows_[static_cast<size_t>(Index(slot))]; }
  const Row& row(RequestSlot slot) const { return ConstRow(slot); }
  std::span<const TokenId> token_ids(RequestSlot slot) const;
  // May be read while another thread appends a token.
  std::span<const TokenId> prompt_ids(RequestSlot slot) const;
  std::span<const TokenId> output_ids(RequestSlot slot) const;
  // Tokens and drafts: what a step computes.
  std::span<const TokenId> input_ids(RequestSlot slot) const;
  std::span<const int32_t> block_table(RequestSlot slot, int32_t group = 0) const;
  const ExecutorLimits& limits() const { return limits_; }
  int64_t max_blocks_per_request() const { return max_blocks_; }

 private:
  TokenId* TokensOf(RequestSlot slot) const {
    return token_ids_.get() + int64_t{Index(slot)} * limits_.max_model_len;
  }
  const Row& ConstRow(RequestSlot slot) const { return rows_[static_cast<size_t>(Index(slot))]; }
  Status ResolveParams(const AdmittedRequest& request, int32_t num_computed_tokens, Row* row) const;

  int32_t* TableOf(RequestSlot slot, int32_t group) const {
    return block_table_.get() + (Index(slot) * limits_.groups.count() + group) * max_blocks_;
  }

  ExecutorLimits limits_;
  SamplingLimits sampling_limits_;
  bool has_device_sampler_;
  int64_t max_blocks_ = 0;
  std::vector<Row> rows_;
  std::unique_ptr<TokenId[]> token_ids_;    // [max_num_seqs, max_model_len]
  std::unique_ptr<int32_t[]> block_table_;  // [max_num_seqs, groups, max_blocks]
};

}  // namespace tandem
