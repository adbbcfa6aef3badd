#include "engine_core/scheduler/waiting_pass.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

bool ReadsPrefixCache(const Request& request) {
  // A cached prefix makes no logits, so prompt logprobs need the whole prompt computed.
  const wire::SamplingParams& params = request.wire.sampling_params;
  return !params.skip_reading_prefix_cache.value_or(params.prompt_logprobs.has_value());
}

}  // namespace

void WaitingPass::Run(bool admits_new, StepPlan* plan) {
  const bool continues = RunQueue(parts_.requests.holding(), plan);
  if (continues && admits_new) RunQueue(parts_.requests.waiting(), plan);
}

// False: the pass has ended.
bool WaitingPass::RunQueue(const RequestQueue& queue, StepPlan* plan) {
  const auto max_running = static_cast<size_t>(parts_.config.max_num_active_seqs);
  Request* request = queue.First();
  while (request != nullptr) {
    if (plan->budget_tokens() <= 0 || parts_.requests.running().size() >= max_running) return false;
    Request* next = queue.Next(request);
    const Outcome outcome = TryTake(request, plan);
    if (outcome == Outcome::kNoRoom) return false;
    parts_.requests.SetPassedOver(request, outcome == Outcome::kWaits);
    request = next;
  }
  return true;
}

WaitingPass::Outcome WaitingPass::TryTake(Request* request, StepPlan* plan) {
  if (request->is_blocked() || !parts_.requests.HasRoomForAdapter(*request)) {
    return Outcome::kWaits;
  }
  const std::optional<Prefix> prefix = FindPrefix(*request);
  if (!prefix) return Outcome::kWaits;
  if (prefix->is_async) return TryLoad(request, *prefix) ? Outcome::kWaits : Outcome::kNoRoom;
  return TryAdmit(request, *prefix, plan) ? Outcome::kAdmitted : Outcome::kNoRoom;
}

// nullopt: not known yet.
std::optional<WaitingPass::Prefix> WaitingPass::FindPrefix(const Request& request) const {
  Prefix prefix;
  if (request.holds_blocks) {
    prefix.known = request.known;
    return prefix;
  }
  if (!ReadsPrefixCache(request)) return prefix;
  prefix.looked_up = parts_.kv_cache.config().enable_prefix_caching;
  if (prefix.looked_up) {
    // At least the last token is computed: its logits are needed.
    prefix.cached =
        parts_.kv_cache.FindCachedPrefix(request.block_hashes, request.num_tokens() - 1);
  }
  prefix.known.num_local =
      static_cast<int32_t>(prefix.cached.size()) * parts_.kv_cache.config().block_size;
  const std::optional<KvMatch> match = parts_.transfers.Match(request, prefix.known.num_local);
  if (!match) return std::nullopt;
  prefix.known.num_remote = match->num_tokens;
  prefix.is_async = match->is_async && match->num_tokens > 0;
  return prefix;
}

bool WaitingPass::TryAdmit(Request* request, const Prefix& prefix, StepPlan* plan) {
  const int32_t num_known = prefix.known.total();
  const int32_t num_left = request->num_tokens() - num_known;
  const bool is_prefill = num_left > 1;
  if (is_prefill && (plan->holds_prefills() || plan->prefill_tokens() <= 0)) return false;
  int32_t num_tokens = std::min(num_left, plan->chunk_limit());
  if (!parts_.config.enable_chunked_prefill && num_tokens > plan->budget_tokens()) return false;
  num_tokens = std::min(num_tokens, plan->budget_tokens());
  if (is_prefill) num_tokens = std::min(num_tokens, plan->prefill_tokens());
  if (IsPadded(num_left, prefix, *plan)) {
    num_tokens += parts_.drafts.NumPadding(num_known);
    if (num_tokens > plan->budget_tokens()) return false;
  }
  if (!TryGetBlocks(request, prefix, num_known + num_tokens)) return false;

  if (prefix.looked_up) CountLookup(*request, prefix.known.num_local);
  const bool resumed = request->status == wire::RequestStatus::kPreempted;
  parts_.requests.Admit(request, prefix.known, plan->now());
  plan->AddAdmitted(request, num_tokens, resumed);
  if (is_prefill) plan->NotePrefill(num_tokens);
  return true;
}

// A request with one token left joins a step of decodes, or opens one, in which each has room for
// all drafts. Beside chunks of prompts the step is not uniform in any case.
bool WaitingPass::IsPadded(int32_t num_left, const Prefix& prefix, const StepPlan& plan) const {
  if (num_left != 1 || !parts_.drafts.pads_new_requests()) return false;
  if (plan.num_running() == 0 && prefix.known.total() == 0) return false;
  const std::vector<Request*>& running = parts_.requests.running();
  return std::ranges::none_of(running, [](const Request* r) { return r->mid_prefill; });
}

// It gets the blocks of all its tokens now: otherwise all requests that wait with blocks could need
// one more while none runs that could be preempted for it.
bool WaitingPass::TryLoad(Request* request, const Prefix& prefix) {
  const int32_t num_padding =
      parts_.drafts.pads_new_requests() ? parts_.drafts.NumPadding(request->num_tokens() - 1) : 0;
  if (!TryGetBlocks(request, prefix, request->num_tokens() + num_padding)) return false;
  if (prefix.looked_up) CountLookup(*request, prefix.known.num_local);
  parts_.requests.HoldForLoad(request, prefix.known);
  return true;
}

// Gets room for its first num_tokens in next_slot().
bool WaitingPass::TryGetBlocks(Request* request, const Prefix& prefix, int32_t num_tokens) {
  const RequestSlot slot = parts_.requests.next_slot();
  if (request->holds_blocks) {
    parts_.kv_cache.Attach(slot, std::move(request->held));
    CHECK(parts_.kv_cache.TryGrow(slot, request->sequence(), num_tokens,
                                  parts_.drafts.num_lookahead_tokens()))
        << request->id();
    return true;
  }
  Admission admission;
  admission.cached_prefix = prefix.cached;
  admission.num_tokens = num_tokens;
  admission.num_lookahead_tokens = parts_.drafts.num_lookahead_tokens();
  admission.num_tokens_to_fit = parts_.config.reserve_full_isl ? request->num_tokens() : 0;
  admission.keep_watermark = !parts_.requests.running().empty();
  const bool loads = prefix.known.num_remote > 0;
  // The load may fail, so its blocks are not registered yet.
  SequenceView sequence = request->sequence();
  if (loads) sequence.block_hashes = {};
  if (!parts_.kv_cache.TryAdmit(slot, sequence, admission)) return false;
  parts_.transfers.Begin(request, parts_.kv_cache.BlockTable(slot), prefix.known, prefix.is_async);
  return true;
}

void WaitingPass::CountLookup(const Request& request, int32_t num_hit_tokens) {
  wire::PrefixCacheStats& stats = prefix_cache_stats_;
  // Prompts that were looked up before would distort the hit rate of new ones.
  const bool again = request.num_preemptions > 0 || request.has_output;
  (again ? stats.preempted_requests : stats.requests) += 1;
  (again ? stats.preempted_queries : stats.queries) += request.num_tokens();
  (again ? stats.preempted_hits : stats.hits) += num_hit_tokens;
}

}  // namespace tandem
