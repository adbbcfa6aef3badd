#include "engine_core/scheduler/step_plan.h"

#include <algorithm>
#include <utility>

namespace tandem {

void StepPlan::Begin(double now, const Limits& limits) {
  now_ = now;
  limits_ = limits;
  has_prefill_ = is_short_ = false;
  num_running_ = 0;
  entries_.clear();
}

bool StepPlan::TryTakeBack(const Request* request) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [=](const Entry& e) { return e.request == request; });
  if (entry == entries_.end()) return false;
  Spend(-entry->num_tokens, -limits_.input_slots);
  limits_.prefill_tokens += entry->num_prefill_tokens;
  entries_.erase(entry);
  --num_running_;
  return true;
}

int32_t StepPlan::NumTokensOf(const Request* request) const {
  const auto entry =
      std::ranges::find_if(entries_, [=](const Entry& e) { return e.request == request; });
  return entry == entries_.end() ? 0 : entry->num_tokens;
}

void StepPlan::Build(const KvCacheManager& kv_cache, const DraftTokens& drafts,
                     ThinkingBudgets* budgets, Step* step) const {
  SchedulerOutput& output = step->output;
  budgets->Begin();
  for (Entry entry : entries_) {
    Request* request = entry.request;
    if (std::exchange(request->enters_again, false)) {
      entry.kind = ScheduledKind::kResumed;
      entry.num_blocks_before = 0;
    }
    const auto request_idx = static_cast<int32_t>(output.requests.size());
    const auto new_blocks =
        kv_cache.BlockTable(request->slot).subspan(static_cast<size_t>(entry.num_blocks_before));
    const int32_t num_drafts = entry.num_tokens - request->num_uncomputed_tokens();
    output.requests.push_back({
        .slot = request->slot,
        .num_computed_tokens = request->num_computed_tokens,
        .num_scheduled_tokens = entry.num_tokens,
        .new_blocks_begin = static_cast<int32_t>(output.new_block_ids.size()),
        .num_new_blocks = static_cast<int32_t>(new_blocks.size()),
        .kind = entry.kind,
        .needs_sample = num_drafts >= 0,
    });
    output.new_block_ids.insert(output.new_block_ids.end(), new_blocks.begin(), new_blocks.end());
    if (entry.kind != ScheduledKind::kRunning) {
      output.admitted.push_back({.request_idx = request_idx,
                                 .request_id = &request->id(),
                                 .sampling_params = &request->wire.sampling_params,
                                 .pooling_params = request->pooling.get(),
                                 .token_ids = request->token_ids,
                                 .num_prompt_tokens = request->num_prompt_tokens,
                                 .embeddings = request->extra_keys.embeddings,
                                 .images = request->images,
                                 .adapter = request->adapter()});
    }
    output.num_scheduled_tokens += entry.num_tokens;
    const bool is_prefill = entry.kind == ScheduledKind::kRunning
                                ? request->mid_prefill
                                : request->num_uncomputed_tokens() > 1;
    if (is_prefill) {
      ++output.num_prefills;
      output.num_prefill_tokens += entry.num_tokens;
    }
    if (num_drafts >= 0) budgets->Apply(*request, request_idx, &output);
    if (num_drafts > 0) drafts.Schedule(num_drafts, request, &output.requests.back(), &output);
    request->num_computed_tokens += entry.num_tokens;
    request->mid_prefill = request->num_uncomputed_tokens() > 0;
    if (!request->mid_prefill) ++request->num_output_placeholders;
    ++request->num_steps_in_flight;
    step->requests.push_back(request);
  }
  output.num_drafts_wanted = drafts.NumWanted(output.requests.size());
}

}  // namespace tandem
