#pragma once

// Drafts of speculative decoding. A drafter on the worker guesses what follows a request's last
// token; the next step computes the guesses along with that token and keeps those that the model
// would have sampled itself, so it yields several tokens. Here: the number of drafts of a request,
// the room that they and the drafter need, their way into a step and back, and their statistics.
// Without a drafter (num_speculative_tokens 0) all of these are 0.
// A request whose next tokens may need masks that nobody makes gets none: before its grammar
// begins, and where a thinking budget may end within the drafts. In vLLM's words: spec_token_ids,
// num_lookahead_tokens, scheduled_spec_decode_tokens. Thread: engine loop. Owns the statistics.
// Counts are tokens. Steady decode allocates nothing, except for the statistics of a step that has
// verified drafts.
//
// Life of a draft: it comes with the result of the step that samples the token before it. The
// request's next step computes it, counted as computed and as an output to come. That step's result
// accepts it or takes both counts back. A step that is scheduled before the previous result is
// known names no drafts but has room for them: the worker uses its own guesses. A preemption drops
// the drafts. Tokens get a hash only once they are accepted.

#include <cstdint>
#include <optional>
#include <span>

#include "common/ids.h"
#include "engine_core/scheduler/model_output.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/scheduler_config.h"
#include "engine_core/scheduler/scheduler_output.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class DraftTokens {
 public:
  DraftTokens(const DraftConfig& config, int32_t max_model_len);

  int32_t num_lookahead_tokens() const { return config_.num_lookahead_tokens; }
  int32_t num_input_slots() const { return config_.num_input_slots; }

  // Drafts to verify with the next token of a running request.
  int32_t NumFor(const Request& request) const {
    if (config_.num_speculative_tokens == 0) return 0;
    const int32_t num_drafts = request.num_output_placeholders > 0
                                   ? config_.num_speculative_tokens
                                   : static_cast<int32_t>(request.drafts.token_ids.size());
    return num_drafts > 0 && MayDraft(request, num_drafts) ? num_drafts : 0;
  }
  bool pads_new_requests() const { return config_.pads_new_requests && config_.by_batch.empty(); }
  // Room for drafts that such a request gets, whose one token to compute follows num_computed
  // others. All or none: with fewer the step would not be uniform.
  int32_t NumPadding(int32_t num_computed) const;
  // Drafts that the worker should propose for each request of a step with num_requests.
  int32_t NumWanted(size_t num_requests) const;

  // Writes the request's drafts into the step and counts them as in flight.
  void Schedule(int32_t num_drafts, Request* request, ScheduledRequest* scheduled,
                SchedulerOutput* output) const;
  // Folds back the drafts of a step that sampled: rejected ones no longer count as computed or to
  // come, and the request gets its new drafts. Returns the accepted ones, valid as long as the
  // result. drafted: nullptr if the result has nothing about the request. is_stale: the step is
  // from before a preemption, which has taken the counts back already.
  std::span<const TokenId> Settle(const ScheduledRequest& scheduled, const ModelOutput& result,
                                  const DraftResult* drafted, bool is_stale, Request* request) {
    if (config_.num_speculative_tokens == 0) return {};
    return SettleDrafts(scheduled, result, drafted, is_stale, request);
  }

  // Statistics since the last call; nullopt if nothing was verified.
  std::optional<wire::SpecDecodingStats> TakeStats();
  // Of a request that ends; absent where nothing is to be reported.
  wire::Rare<wire::RawValue> MetricsOf(const Request& request) const;

 private:
  static bool MayDraft(const Request& request, int32_t num_drafts) {
    return (!request.needs_grammar || request.has_grammar_begun()) &&
           !request.reasoning.MayForceAfter(request.num_output_placeholders + num_drafts);
  }
  std::span<const TokenId> SettleDrafts(const ScheduledRequest& scheduled,
                                        const ModelOutput& result, const DraftResult* drafted,
                                        bool is_stale, Request* request);
  void Count(const DraftResult& drafted, Request* request);
  void CountForRequest(const DraftResult& drafted, Request* request) const;
  wire::SpecDecodingStats NoCounts() const;
  wire::RequestSpecDecodeMetrics NoMetrics() const;

  DraftConfig config_;
  int32_t max_model_len_;
  wire::SpecDecodingStats stats_;
};

}  // namespace tandem
