#pragma once

// The step being made: the tokens given to each request and the budget that is left. The passes
// fill it; Build turns it into the executor's step.
// Thread: engine loop. Counts are tokens.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/draft_tokens.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/step.h"
#include "engine_core/scheduler/thinking_budgets.h"

namespace tandem {

class StepPlan {
 public:
  struct Limits {
    int32_t budget_tokens = 0;
    int32_t input_tokens = 0;  // a second budget, of which each request takes input_slots more
    int32_t input_slots = 0;
    int32_t chunk_limit = 0;     // most tokens of one request
    int32_t prefill_tokens = 0;  // a third budget, of requests in their prefill
    bool hold_prefills = false;  // decodes only
    bool admits_new = true;      // requests that hold no blocks yet
  };

  explicit StepPlan(int32_t max_num_seqs) { entries_.reserve(static_cast<size_t>(max_num_seqs)); }

  void Begin(double now, const Limits& limits);
  void AddRunning(Request* request, int32_t num_tokens, int32_t num_blocks_before,
                  bool is_prefill) {
    Add({request, num_tokens, num_blocks_before, ScheduledKind::kRunning}, is_prefill);
    ++num_running_;
  }
  void AddAdmitted(Request* request, int32_t num_tokens, bool resumed, bool is_prefill) {
    const ScheduledKind kind = resumed ? ScheduledKind::kResumed : ScheduledKind::kNew;
    Add({request, num_tokens, 0, kind}, is_prefill);
  }
  // Takes back what the request was given, from all budgets. False: it was given nothing.
  bool TryTakeBack(const Request* request);
  // Blocks have run out: a running request was preempted or could not go on.
  void NoteShortage() { is_short_ = true; }

  double now() const { return now_; }
  // Tokens that the next request can get.
  int32_t budget_tokens() const {
    return std::min(limits_.budget_tokens, limits_.input_tokens - limits_.input_slots);
  }
  int32_t chunk_limit() const { return limits_.chunk_limit; }
  // Of them, those that a request in its prefill can get.
  int32_t prefill_tokens() const { return limits_.prefill_tokens; }
  bool holds_prefills() const { return limits_.hold_prefills; }
  bool admits_new() const { return limits_.admits_new; }
  bool has_prefill() const { return has_prefill_; }
  bool is_short() const { return is_short_; }
  bool empty() const { return entries_.empty(); }
  // What the request was given; 0: nothing.
  int32_t NumTokensOf(const Request* request) const;
  int32_t num_running() const { return num_running_; }  // given tokens, and not admitted now

  // Writes the step and advances each request's num_computed_tokens to their value after it. Tokens
  // given beyond a request's uncomputed ones are drafts.
  void Build(const KvCacheManager& kv_cache, const DraftTokens& drafts, ThinkingBudgets* budgets,
             Step* step) const;

 private:
  struct Entry {
    Request* request = nullptr;
    int32_t num_tokens = 0;
    int32_t num_blocks_before = 0;  // of its table, known to the worker
    ScheduledKind kind = ScheduledKind::kRunning;
    int32_t num_prefill_tokens = 0;  // spent from that budget
  };
  void Add(Entry entry, bool is_prefill) {
    // An image that must be whole may take more than is left.
    if (is_prefill) entry.num_prefill_tokens = std::min(entry.num_tokens, limits_.prefill_tokens);
    has_prefill_ = has_prefill_ || is_prefill;
    limits_.prefill_tokens -= entry.num_prefill_tokens;
    Spend(entry.num_tokens, limits_.input_slots);
    entries_.push_back(entry);
  }
  void Spend(int32_t num_tokens, int32_t num_slots) {
    limits_.budget_tokens -= num_tokens;
    limits_.input_tokens -= num_tokens + num_slots;
  }

  double now_ = 0;
  Limits limits_;  // the budgets: what is left
  bool has_prefill_ = false;
  bool is_short_ = false;
  int32_t num_running_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace tandem
