#pragma once

// The result of a step: made by an Executor, folded back by Scheduler::Update, parallel to its
// SchedulerOutput. A value; thread: engine loop. Reused from step to step.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/scheduler/kv_connector.h"
#include "proto_msgpack/schema.h"

namespace tandem {

constexpr TokenId kNoToken = -1;

// What became of a request that is pooled: a vector, or a row for each of its tokens.
struct PooledStates {
  int64_t num_rows = 0;  // 0: one vector
  int64_t num_columns = 0;
  std::vector<float> values;
};

// A request's results besides its tokens. Only requests that have any get one.
struct RequestResult {
  int32_t request_idx = 0;  // into SchedulerOutput::requests
  Status status;            // not OK: the request ends with this error; its tokens are ignored
  int32_t num_nans_in_logits = 0;
  // A row per token, those of the accepted drafts first.
  std::optional<wire::LogprobsRows> logprobs;
  // Of the whole prompt, gathered over its chunks and returned with the step that first samples;
  // not repeated after a preemption.
  std::optional<wire::LogprobsRows> prompt_logprobs;
  std::optional<wire::RawValue> prompt_scores;  // likewise, as the wire has them
  std::optional<PooledStates> pooled;           // with the step that computes its last token
};

// What became of a request's drafts, and the drafts that follow its sampled token. Only requests
// that have either get one.
struct DraftResult {
  int32_t request_idx = 0;  // into SchedulerOutput::requests
  // The step's drafts that were guesses: not mere room, not refused by a grammar.
  int32_t num_verified = 0;
  int32_t begin = 0;         // into ModelOutput::draft_token_ids
  int32_t num_accepted = 0;  // the first ones: output tokens before the sampled one
  int32_t num_proposed = 0;  // the ones after them: drafts for the next step
};

struct ModelOutput {
  std::vector<TokenId> sampled_token_ids;  // one per request; kNoToken where !needs_sample
  std::vector<RequestResult> results;      // ascending request_idx; empty in most steps
  std::vector<DraftResult> drafts;         // likewise; empty without a drafter
  std::vector<TokenId> draft_token_ids;
  KvTransferReport kv_transfers;  // of the worker's side of a KV connector

  std::span<const TokenId> Accepted(const DraftResult& drafted) const {
    return DraftIds(drafted.begin, drafted.num_accepted);
  }
  std::span<const TokenId> Proposed(const DraftResult& drafted) const {
    return DraftIds(drafted.begin + drafted.num_accepted, drafted.num_proposed);
  }
  void Clear() {
    sampled_token_ids.clear();
    results.clear();
    drafts.clear();
    draft_token_ids.clear();
    kv_transfers.Clear();
  }

 private:
  std::span<const TokenId> DraftIds(int32_t begin, int32_t count) const {
    return std::span<const TokenId>(draft_token_ids)
        .subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  }
};

}  // namespace tandem
