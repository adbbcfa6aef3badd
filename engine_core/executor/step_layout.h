#pragma once

// How one step is laid out: the tokens of its requests, one request after another, and which of
// these tokens make a row of logits. A value, computed from the scheduler's step and the
// persistent batch before anything runs; inputs, attention plan, graphs and sampler all read it.
// Padding: requests that no client sent follow the others where a graph or a first step needs a
// certain size. They read the null block and write nothing.
// A draft is one more row of logits of its request. Where the scheduler counted on more accepted
// drafts than there were, the request is laid out from its first token that is not computed.
// Thread: engine loop. Reused from step to step; after Reserve, a step with one row of logits per
// request allocates nothing.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine_core/executor/input_batch.h"
#include "engine_core/scheduler/scheduler_output.h"

namespace tandem {

// A row of logits that the step makes.
struct LogitsRow {
  int32_t request_idx = 0;  // into StepLayout::requests
  int32_t token_row = 0;    // the token after which these logits come, a row of the step
  // Place in the prompt whose logprobs or scores are computed from it; -1: a token is sampled.
  int32_t prompt_row = -1;
  int32_t mask_idx = -1;   // into SchedulerOutput::token_masks, for a sampled token; -1: no mask
  bool on_device = false;  // else the host reads it
};

// Of the requests of a step, as AttentionBatch has them.
struct StepLengths {
  std::span<const int32_t> query_start, context_len, num_drafts;
};

struct StepLayout {
  std::vector<ScheduledRequest> requests;  // as they run
  std::vector<LogitsRow> logits_rows;      // in the order of the requests
  // Of the requests, then of the padding. query_start: first token row of each, then num_tokens().
  // context_len: tokens of each, up to its last one in this step. num_drafts: of each; empty where
  // no request has any.
  std::vector<int32_t> query_start;
  std::vector<int32_t> context_len;
  std::vector<int32_t> num_drafts;
  // The adapters of the requests, each once, and of each request the index of its own; -1: none.
  // The second is empty if the first is. On a device places of its table (AdapterPlaces).
  std::vector<std::shared_ptr<const AdapterWeights>> adapters;
  std::vector<int32_t> adapter_of_request;
  // There are adapters; of padding alone: ops for them run.
  bool is_adapted = false;
  int64_t max_blocks = 0;  // of the request with the longest block table
  int64_t num_padding_logits_rows = 0;
  bool has_device_rows = false;  // among logits_rows
  bool has_host_rows = false;
  int32_t max_device_logprobs = -1;  // of a row on the device; -1: none reports any
  int32_t num_drafts_wanted = 0;     // SchedulerOutput::num_drafts_wanted

  void Reserve(int64_t max_requests);

  // REQUIRES: the batch has taken in the step's frees, admissions and blocks.
  void LayOut(const SchedulerOutput& step, const InputBatch& batch);
  // In place of LayOut, for a drafter: chunks of requests, drafts among their tokens, at most one
  // row of logits of each.
  void Begin() { Clear(); }
  void AddChunk(const InputBatch& batch, RequestSlot slot, int32_t begin, int32_t count,
                bool makes_logits);
  // In place of LayOut, for Model::TakeInDrafts: drafts of a request that are its tokens now. The
  // first is draft `first_draft` of the step; logits_rows have the drafts.
  void AddDrafts(const InputBatch& batch, RequestSlot slot, int32_t begin, int32_t count,
                 int32_t first_draft);
  // Nothing but padding: num_tokens tokens, of which the first num_logits_rows make logits, in
  // requests of tokens_per_request tokens (the last may have fewer).
  void LayOutPadding(int64_t num_tokens, int64_t tokens_per_request, int64_t num_logits_rows,
                     int32_t block_size);
  // Adds requests of one token and one row of logits each.
  // REQUIRES: is_uniform_decode(), at most `num_requests` requests.
  void PadTo(int64_t num_requests);

  int64_t num_tokens() const { return query_start.back(); }
  int64_t num_requests() const { return static_cast<int64_t>(context_len.size()); }  // and padding
  int64_t num_logits_rows() const {
    return static_cast<int64_t>(logits_rows.size()) + num_padding_logits_rows;
  }
  StepLengths lengths() const { return {query_start, context_len, num_drafts}; }
  // Whether the row's sample counts only if the token that the row before makes is the draft.
  bool FollowsDraft(size_t row_idx) const;
  // Whether each request runs one token and makes its row of logits, which is what graphs hold.
  bool is_uniform_decode() const;

 private:
  void Clear();
  void PlaceAdapters(const InputBatch& batch);
  static void LayOutDrafts(const InputBatch::Row& row, ScheduledRequest* request);
  void AddLogitsRows(int32_t request_idx, const InputBatch::Row& row, int32_t mask_idx);
};

}  // namespace tandem
