#include "engine_core/scheduler/running_pass.h"

#include <algorithm>
#include <tuple>

#include "engine_core/scheduler/request_queue.h"

namespace tandem {
namespace {

// Requests of equal urgency preempt each other in turn until one has been preempted this often.
constexpr int32_t kMaxTurns = 16;

bool IsMoreUrgent(const Request* a, const Request* b) {
  return std::tie(a->wire.priority, a->wire.arrival_time) <
         std::tie(b->wire.priority, b->wire.arrival_time);
}

}  // namespace

void RunningPass::Run(StepPlan* plan) {
  const std::vector<Request*>& running = parts_.requests.running();
  const int32_t num_steps = parts_.config.num_pipeline_steps;
  const auto most = (static_cast<int32_t>(running.size()) + num_steps - 1) / num_steps;
  for (size_t i = 0; i < running.size() && plan->budget_tokens() > 0;) {
    if (plan->num_running() == most) return;
    Request* request = running[i];
    const EncoderCache::Chunk chunk =
        parts_.encoder_cache.ChunkFor(*request, request->num_computed_tokens,
                                      NumTokensFor(*request, *plan), plan->budget_tokens());
    const int32_t num_tokens = chunk.num_tokens;
    if (num_tokens == 0) {
      parts_.encoder_cache.Take(*request, request->num_computed_tokens, chunk);
      ++i;
      continue;
    }
    const auto num_blocks_before =
        static_cast<int32_t>(parts_.kv_cache.BlockTable(request->slot).size());
    const Room room = MakeRoom(&i, num_tokens, plan);
    if (room == Room::kNone) return;
    if (room == Room::kWasPreempted) continue;  // it is no longer at i
    parts_.encoder_cache.Take(*request, request->num_computed_tokens, chunk);
    plan->AddRunning(request, num_tokens, num_blocks_before, request->mid_prefill);
    ++i;
  }
}

// 0: the request gets nothing in this step; later ones may.
int32_t RunningPass::NumTokensFor(const Request& request, const StepPlan& plan) const {
  if (request.mid_prefill && plan.holds_prefills()) return 0;
  const bool awaits_token =
      parts_.config.num_pipeline_steps > 1 && request.num_output_placeholders > 0;
  const bool must_wait =
      awaits_token || request.awaits_masked_token() || ThinkingBudgets::MustWait(request);
  if (must_wait || request.will_reach_max_tokens()) return 0;
  const int32_t num_wanted = request.num_uncomputed_tokens() + parts_.drafts.NumFor(request);
  const int32_t num_left =
      std::min(plan.budget_tokens(), request.most_computed_tokens(parts_.config.max_model_len) -
                                         request.num_computed_tokens);
  const int32_t num_tokens = std::min({num_wanted, plan.chunk_limit(), num_left});
  if (!request.mid_prefill) return num_tokens;
  const int32_t most = std::min(plan.budget_tokens(), plan.prefill_tokens());
  // It goes on in any case: those before it may find no room.
  const int32_t num_others = NumTokensDueBefore(request, plan, most);
  return std::min({num_tokens, most, std::max(most - num_others, PrefillPace::kLeastTokens)});
}

// Tokens that the step may give to prompts that are due before this one, up to `most`: to running
// ones, and to those that can be admitted.
int32_t RunningPass::NumTokensDueBefore(const Request& request, const StepPlan& plan,
                                        int32_t most) const {
  if (parts_.config.policy != SchedulingPolicy::kShortestPrompt) return 0;
  const double seconds_per_token = parts_.config.seconds_per_prompt_token();
  const auto is_due = [&, due = DueTime(request, seconds_per_token)](const Request* other,
                                                                     double other_due) {
    return std::tie(other->wire.priority, other_due) < std::tie(request.wire.priority, due);
  };
  const std::vector<Request*>& running = parts_.requests.running();
  int32_t num_tokens = 0;
  for (const Request* other : running) {
    if (num_tokens >= most) return most;
    if (!other->mid_prefill || other == &request || AwaitsImage(*other)) continue;
    if (is_due(other, DueTime(*other, seconds_per_token))) {
      num_tokens += std::min(other->num_uncomputed_tokens(), plan.chunk_limit());
    }
  }
  if (!plan.admits_new()) return std::min(num_tokens, most);
  const RequestQueue& waiting = parts_.requests.waiting();
  auto num_seats = parts_.config.max_num_active_seqs - static_cast<int32_t>(running.size());
  int32_t num_free_blocks = parts_.kv_cache.pool().num_free();
  for (Request* other = waiting.First(); other != nullptr && num_seats > 0 && num_tokens < most;
       other = waiting.Next(other)) {
    if (!is_due(other, other->due)) break;
    if (other->is_blocked() || other->is_passed_over) continue;
    num_free_blocks -= parts_.kv_cache.MaxHeldBlocksFor(other->num_tokens());
    if (num_free_blocks < 0) break;
    num_tokens += std::min(other->num_tokens(), plan.chunk_limit());
    --num_seats;
  }
  return std::min(num_tokens, most);
}

// Its next token stands for a row that is not there, and may not be for many steps.
bool RunningPass::AwaitsImage(const Request& request) const {
  const int32_t most = parts_.config.max_num_batched_tokens;
  return parts_.encoder_cache.ChunkFor(request, request.num_computed_tokens, 1, most).num_tokens ==
         0;
}

// Gets blocks for the next num_tokens of running()[*running_idx], preempting others as needed;
// *running_idx follows the request. The victim may be the request itself.
RunningPass::Room RunningPass::MakeRoom(size_t* running_idx, int32_t num_tokens, StepPlan* plan) {
  Request* request = parts_.requests.running()[*running_idx];
  const int32_t num_tokens_after = request->num_computed_tokens + num_tokens;
  while (!parts_.kv_cache.TryGrow(request->slot, request->sequence(), num_tokens_after,
                                  parts_.drafts.num_lookahead_tokens())) {
    const size_t victim_idx = PickVictim();
    Request* victim = parts_.requests.running()[victim_idx];
    plan->NoteShortage();
    if (!parts_.transfers.CanRelease(*victim)) return Room::kNone;
    TakeBack(victim, plan);
    parts_.requests.Preempt(victim, StaleOutput::kDeliver, plan->now());
    if (victim == request) return Room::kWasPreempted;
    if (victim_idx < *running_idx) --*running_idx;
  }
  return Room::kMade;
}

size_t RunningPass::PickVictim() const {
  const std::vector<Request*>& running = parts_.requests.running();
  if (parts_.config.policy == SchedulingPolicy::kFcfs) return running.size() - 1;
  if (parts_.config.policy == SchedulingPolicy::kShortestPrompt) {
    const auto last = std::max_element(
        running.rbegin(), running.rend(),
        [](const Request* a, const Request* b) { return a->wire.priority < b->wire.priority; });
    return static_cast<size_t>(running.rend() - last) - 1;
  }
  auto victim = std::max_element(running.begin(), running.end(), IsMoreUrgent);
  // Among equals that is the one admitted first, so two that do not fit together could undo each
  // other's work for ever. After kMaxTurns the queue's order decides, and one of them is spared.
  if ((*victim)->num_preemptions >= kMaxTurns) {
    victim = std::max_element(running.begin(), running.end(), IsAdmittedBefore);
  }
  return static_cast<size_t>(victim - running.begin());
}

// Undoes what this step has given to a victim. Blocks filled by the tokens that will not run now
// were registered when they were scheduled and must not be hit.
void RunningPass::TakeBack(Request* request, StepPlan* plan) {
  if (!plan->TryTakeBack(request)) return;
  parts_.kv_cache.ForgetBeyond(request->slot, request->sequence(), request->num_computed_tokens);
}

}  // namespace tandem
