#include "engine_core/scheduler/waiting_pass.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "engine_core/scheduler/reads_prefix.h"

namespace tandem {
namespace {

void AddCount(const std::string& name, int64_t count, wire::CountsByName* counts) {
  const auto found = std::ranges::find(*counts, name, &wire::CountsByName::value_type::first);
  if (found != counts->end()) {
    found->second += count;
  } else {
    counts->emplace_back(name, count);
  }
}

}  // namespace

void WaitingPass::Run(StepPlan* plan) {
  const bool continues = RunQueue(parts_.requests.holding(), plan);
  if (continues && plan->admits_new()) RunQueue(parts_.requests.waiting(), plan);
  while (!moved_.empty()) {
    parts_.requests.MoveToWaiting(moved_.back());
    moved_.pop_back();
  }
}

// False: the pass has ended.
bool WaitingPass::RunQueue(const RequestQueue& queue, StepPlan* plan) {
  const auto max_running = static_cast<size_t>(parts_.config.max_num_active_seqs);
  bool lacks_room = false;
  Request* request = queue.First();
  while (request != nullptr) {
    if (plan->budget_tokens() <= 0 || parts_.requests.running().size() >= max_running) return false;
    Request* next = queue.Next(request);
    const Outcome outcome = TryTake(request, plan);
    if (outcome == Outcome::kNoRoom) {
      // The one that began to load last may be first here. It left the others what they lack, and
      // nothing else can free what it lacks.
      if (!request->holds_blocks || !parts_.requests.running().empty()) return false;
      lacks_room = true;
      request = next;
      continue;
    }
    parts_.requests.SetPassedOver(request, outcome == Outcome::kWaits);
    // Its load has brought nothing, and whether there is another is not known yet.
    if (request->is_holding && !request->holds_blocks) moved_.push_back(request);
    request = next;
  }
  return !lacks_room;
}

WaitingPass::Outcome WaitingPass::TryTake(Request* request, StepPlan* plan) {
  if (request->load == KvLoad::kEnded) parts_.requests.EndLoad(request);
  if (request->is_blocked() || !parts_.requests.HasRoomForAdapter(*request)) {
    return Outcome::kWaits;
  }
  const std::optional<Prefix> prefix = FindPrefix(request, *plan);
  if (!prefix) return Outcome::kWaits;
  if (prefix->is_async) {
    return TryLoad(request, *prefix, *plan) ? Outcome::kWaits : Outcome::kNoRoom;
  }
  return TryAdmit(request, *prefix, plan);
}

// nullopt: not known yet.
std::optional<WaitingPass::Prefix> WaitingPass::FindPrefix(Request* request,
                                                           const StepPlan& plan) const {
  Prefix prefix;
  if (request->holds_blocks) {
    prefix.known = request->known;
    return prefix;
  }
  const bool reads_prefix = ReadsPrefixCache(*request);
  if (reads_prefix && parts_.kv_cache.config().enable_prefix_caching) {
    prefix.looked_up = true;
    prefix.cached = FindLocal(*request, plan);
  }
  prefix.known.num_local = parts_.kv_cache.NumTokensIn(prefix.cached);
  const bool gave_up = request->num_failed_loads >= parts_.config.max_failed_kv_loads;
  if (!parts_.transfers.has_connector() || gave_up) return prefix;
  const std::optional<KvMatch> match = parts_.transfers.Match(*request, prefix.known.num_local);
  if (!match) return std::nullopt;
  prefix.was_asked = true;
  if (!reads_prefix) return prefix;
  prefix.known.num_remote = match->num_tokens;
  prefix.is_async = match->is_async && match->num_tokens > 0;
  if (prefix.is_async) request->fetch = KvFetch::kWaitingToStart;
  return prefix;
}

// At least the last token is computed: its logits are needed.
std::span<const BlockId> WaitingPass::FindLocal(const Request& request,
                                                const StepPlan& plan) const {
  std::span<const BlockId> found =
      parts_.kv_cache.FindCachedPrefix(request.block_hashes, request.num_tokens() - 1);
  if (!parts_.transfers.has_connector()) return found;
  // What a failed load has left wrong can be found, but not used before it is computed again.
  for (const Request* holder : parts_.requests.running()) {
    const int32_t num_valid = holder->num_computed_tokens + plan.NumTokensOf(holder);
    if (parts_.kv_cache.NumRegisteredTokens(holder->slot) <= num_valid) continue;
    const auto first_bad = static_cast<size_t>(num_valid / parts_.kv_cache.config().block_size);
    for (BlockId block : parts_.kv_cache.BlockTable(holder->slot).subspan(first_bad)) {
      found = found.first(static_cast<size_t>(std::ranges::find(found, block) - found.begin()));
    }
  }
  return found;
}

WaitingPass::Outcome WaitingPass::TryAdmit(Request* request, const Prefix& prefix, StepPlan* plan) {
  const int32_t num_known = prefix.known.total();
  const int32_t num_left = request->num_tokens() - num_known;
  const bool is_prefill = num_left > 1;
  if (is_prefill && (plan->holds_prefills() || plan->prefill_tokens() <= 0)) {
    return Outcome::kNoRoom;
  }
  int32_t num_tokens = std::min(num_left, plan->chunk_limit());
  if (!parts_.config.enable_chunked_prefill && num_tokens > plan->budget_tokens()) {
    return Outcome::kNoRoom;
  }
  num_tokens = std::min(num_tokens, plan->budget_tokens());
  if (is_prefill) num_tokens = std::min(num_tokens, plan->prefill_tokens());
  EncoderCache::Chunk chunk =
      parts_.encoder_cache.ChunkFor(*request, num_known, num_tokens, plan->budget_tokens());
  if (!parts_.config.enable_chunked_prefill && chunk.awaits_slices()) chunk.num_tokens = 0;
  num_tokens = chunk.num_tokens;
  if (num_tokens == 0) {
    parts_.encoder_cache.Take(*request, num_known, chunk);
    return chunk.awaits_slices() ? Outcome::kWaits : Outcome::kNoRoom;
  }
  const int32_t num_padding =
      IsPadded(num_left, prefix, *plan) ? parts_.drafts.NumPadding(num_known) : 0;
  if (num_tokens + num_padding > plan->budget_tokens()) return Outcome::kNoRoom;
  Admission admission;
  admission.num_tokens = num_known + num_tokens + num_padding;
  admission.num_lookahead_tokens = parts_.drafts.num_lookahead_tokens();
  if (TryGetBlocks(request, prefix, admission)) {
    num_tokens += num_padding;
  } else if (!request->holds_blocks || !parts_.requests.running().empty()) {
    return Outcome::kNoRoom;
  } else {
    // Others that hold blocks may wait for it, so it goes on without padding.
    admission.num_tokens = num_known + num_tokens;
    if (!TryGetBlocks(request, prefix, admission)) return Outcome::kNoRoom;
  }

  CountLookups(*request, prefix);
  const bool resumed = request->status == wire::RequestStatus::kPreempted;
  parts_.requests.Admit(request, prefix.known, plan->now());
  parts_.encoder_cache.Take(*request, num_known, chunk);
  plan->AddAdmitted(request, num_tokens, resumed, is_prefill);
  return Outcome::kAdmitted;
}

// A request with one token left joins a step of decodes, or opens one, in which each has room for
// all drafts. Beside chunks of prompts the step is not uniform in any case.
bool WaitingPass::IsPadded(int32_t num_left, const Prefix& prefix, const StepPlan& plan) const {
  if (num_left != 1 || !parts_.drafts.pads_new_requests()) return false;
  if (plan.num_running() == 0 && prefix.known.total() == 0) return false;
  const std::vector<Request*>& running = parts_.requests.running();
  return std::ranges::none_of(running, [](const Request* r) { return r->mid_prefill; });
}

// It gets the blocks of what it loads. Those that it lacks for its other tokens, as those that
// other loads and unfinished prefills lack, must stay free: nothing that loads can be preempted.
bool WaitingPass::TryLoad(Request* request, const Prefix& prefix, const StepPlan& plan) {
  Admission admission;
  admission.num_tokens = prefix.known.total();
  admission.num_reserved_blocks = NumReservedBlocks(plan);
  if (!TryGetBlocks(request, prefix, admission)) return false;
  CountLookups(*request, prefix);
  parts_.requests.HoldForLoad(request, prefix.known);
  return true;
}

int32_t WaitingPass::NumReservedBlocks(const StepPlan& plan) const {
  const int32_t num_lookahead = parts_.drafts.num_lookahead_tokens();
  int32_t num_blocks = 0;
  for (const Request* request : parts_.requests.running()) {
    if (request->num_computed_tokens + plan.NumTokensOf(request) >= request->num_tokens()) continue;
    const auto num_held = static_cast<int32_t>(parts_.kv_cache.BlockTable(request->slot).size());
    num_blocks += parts_.kv_cache.NumMissingBlocks(num_held, request->num_tokens() + num_lookahead);
  }
  const RequestQueue& holding = parts_.requests.holding();
  for (Request* request = holding.First(); request != nullptr; request = holding.Next(request)) {
    if (!request->holds_blocks) continue;
    num_blocks += parts_.kv_cache.NumMissingBlocks(static_cast<int32_t>(request->held.table.size()),
                                                   request->num_tokens() + num_lookahead);
  }
  return num_blocks;
}

// Gets the room in next_slot().
bool WaitingPass::TryGetBlocks(Request* request, const Prefix& prefix, Admission admission) {
  const RequestSlot slot = parts_.requests.next_slot();
  admission.cached_prefix = prefix.cached;
  if (parts_.config.reserve_full_isl) {
    const int32_t num_lookahead = prefix.is_async ? parts_.drafts.num_lookahead_tokens() : 0;
    admission.num_tokens_to_fit = request->num_tokens() + num_lookahead;
  }
  admission.keep_watermark = !parts_.requests.running().empty();
  const KvMatch match = {prefix.known.num_remote, prefix.is_async};
  SequenceView sequence = request->sequence();
  if (request->holds_blocks) {
    if (!parts_.kv_cache.TryAdmit(slot, sequence, admission, &request->held)) return false;
    parts_.transfers.Begin(request, parts_.kv_cache.BlockTable(slot), prefix.known.total(), {});
    return true;
  }
  if (parts_.transfers.HoldsBack(match)) sequence.block_hashes = {};
  if (!parts_.kv_cache.TryAdmit(slot, sequence, admission)) return false;
  hit_sources_ = parts_.transfers.Sources(*request, prefix.known.num_local, match);
  parts_.transfers.Begin(request, parts_.kv_cache.BlockTable(slot), prefix.known.num_local, match);
  return true;
}

void WaitingPass::CountLookups(const Request& request, const Prefix& prefix) {
  // Prompts that were looked up before would distort the hit rate of new ones.
  const bool again = request.num_preemptions > 0 || request.has_output;
  const auto count = [&](int32_t num_queries, int32_t num_hits, wire::PrefixCacheStats* stats) {
    (again ? stats->preempted_requests : stats->requests) += 1;
    (again ? stats->preempted_queries : stats->queries) += num_queries;
    (again ? stats->preempted_hits : stats->hits) += num_hits;
  };
  const int32_t num_local = prefix.known.num_local;
  if (prefix.looked_up) count(request.num_tokens(), num_local, &prefix_cache_stats_);
  if (!prefix.was_asked) return;
  count(request.num_tokens() - num_local, prefix.known.num_remote, &connector_stats_);
  if (again) return;
  for (const auto& [source, num_tokens] : hit_sources_) {
    AddCount(source, num_tokens, &connector_stats_.hits_by_source);
  }
}

}  // namespace tandem
