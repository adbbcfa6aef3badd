#include "engine_core/scheduler/scheduler.h"

#include <algorithm>
#include <sstream>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "engine_core/scheduler/stop_check.h"

namespace tandem {
namespace {

wire::FinishReason FinishReasonOf(wire::RequestStatus status) {
  switch (status) {
    case wire::RequestStatus::kFinishedStopped:
      return wire::FinishReason::kStop;
    case wire::RequestStatus::kFinishedLengthCapped:
    case wire::RequestStatus::kFinishedIgnored:
      return wire::FinishReason::kLength;
    case wire::RequestStatus::kFinishedAborted:
      return wire::FinishReason::kAbort;
    case wire::RequestStatus::kFinishedRepetition:
      return wire::FinishReason::kRepetition;
    default:
      return wire::FinishReason::kError;
  }
}

bool ReadsPrefixCache(const Request& request) {
  // A cached prefix makes no logits, so prompt logprobs need the whole prompt computed.
  const wire::SamplingParams& params = request.wire.sampling_params;
  return !params.skip_reading_prefix_cache.value_or(params.prompt_logprobs.has_value());
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, KvCacheManager* kv_cache)
    : config_(config),
      kv_cache_(kv_cache),
      waiting_(MakeRequestQueue(config.policy)),
      by_slot_(static_cast<size_t>(config.max_num_seqs), nullptr),
      cadence_(config.prefill_schedule_interval) {
  CHECK_GT(config_.max_num_seqs, 0);
  CHECK_GT(config_.max_model_len, 0);
  CHECK_LE(config_.max_num_seqs, kv_cache->config().max_num_seqs);
  if (config_.max_num_active_seqs == 0) config_.max_num_active_seqs = config_.max_num_seqs;
  if (config_.max_num_scheduled_tokens == 0) {
    config_.max_num_scheduled_tokens = config_.max_num_batched_tokens;
  }
  for (int32_t i = config_.max_num_seqs; i-- > 0;) free_slots_.push_back(RequestSlot{i});
  const auto max_num_seqs = static_cast<size_t>(config_.max_num_seqs);
  running_.reserve(max_num_seqs);
  scheduled_.reserve(max_num_seqs);
  freed_slots_.reserve(max_num_seqs);
  output_.requests.reserve(max_num_seqs);
  output_.admitted.reserve(max_num_seqs);
  output_.freed_slots.reserve(max_num_seqs);
  output_.new_block_ids.reserve(max_num_seqs);
}

Status Scheduler::Add(wire::EngineCoreRequest from_wire, double now) {
  const auto [entry, inserted] = requests_.try_emplace(from_wire.request_id);
  if (!inserted) return AlreadyExistsError("request id " + from_wire.request_id + " is in use");
  entry->second = std::make_unique<Request>(std::move(from_wire), num_added_++);
  Request* request = entry->second.get();
  CHECK(request->num_prompt_tokens > 0 && request->num_prompt_tokens < config_.max_model_len)
      << request->id() << " has " << request->num_prompt_tokens << " tokens";
  kv_cache_->ExtendHashes(request->token_ids, request->cache_salt(), &request->block_hashes);
  request->events.push_back({wire::EventType::kQueued, now});
  waiting_->Add(request);
  return OkStatus();
}

bool Scheduler::Abort(const RequestId& id) {
  const auto entry = requests_.find(id);
  if (entry == requests_.end()) return false;
  Request* request = entry->second.get();
  Finish(request, wire::RequestStatus::kFinishedAborted);
  std::erase(running_, request);
  requests_.erase(entry);
  return true;
}

std::vector<FinishedRequest> Scheduler::AbortAll() {
  return AbortIf([](const Request&) { return true; });
}

std::vector<FinishedRequest> Scheduler::AbortClient(int32_t client_index) {
  return AbortIf([=](const Request& request) { return request.wire.client_index == client_index; });
}

template <class Predicate>
std::vector<FinishedRequest> Scheduler::AbortIf(Predicate predicate) {
  std::vector<const Request*> chosen;
  for (const auto& [id, request] : requests_) {
    if (predicate(*request)) chosen.push_back(request.get());
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const Request* a, const Request* b) { return a->order < b->order; });
  std::vector<FinishedRequest> aborted;
  aborted.reserve(chosen.size());
  for (const Request* request : chosen) {
    aborted.push_back({request->id(), request->wire.client_index});
  }
  for (const FinishedRequest& request : aborted) Abort(request.id);
  return aborted;
}

// ---- Schedule ----

const SchedulerOutput& Scheduler::Schedule(double now) {
  scheduled_.clear();
  kv_cache_->SetNow(now);
  if (pause_state_ != PauseState::kPausedAll) {
    StepPlan plan = StartStep(now);
    ScheduleRunning(&plan);
    // A preemption has just shown that blocks are short.
    if (!plan.preempted) ScheduleWaiting(&plan);
    if (!scheduled_.empty()) {
      ++num_steps_;
      cadence_.NoteStep(plan.has_prefill);
    }
  }
  BuildOutput();
  return output_;
}

Scheduler::StepPlan Scheduler::StartStep(double now) const {
  StepPlan plan;
  plan.now = now;
  plan.budget_tokens = std::min(config_.max_num_scheduled_tokens, config_.max_num_batched_tokens);
  plan.chunk_limit = plan.budget_tokens;
  const auto num_unfinished = static_cast<int32_t>(running_.size() + waiting_->size());
  if (config_.long_prefill_token_threshold > 0 && num_unfinished > 1) {
    plan.chunk_limit = config_.long_prefill_token_threshold;
    if (config_.long_prefill_token_threshold_adaptive) {
      plan.chunk_limit =
          std::max(plan.chunk_limit, config_.max_num_batched_tokens / num_unfinished);
    }
  }
  plan.hold_prefills =
      cadence_.Holds(std::any_of(running_.begin(), running_.end(),
                                 [](const Request* request) { return !request->mid_prefill; }));
  return plan;
}

void Scheduler::ScheduleRunning(StepPlan* plan) {
  for (size_t i = 0; i < running_.size() && plan->budget_tokens > 0;) {
    Request* request = running_[i];
    if (request->mid_prefill && plan->hold_prefills) {
      ++i;
      continue;
    }
    const int32_t num_tokens =
        std::min({request->num_uncomputed_tokens(), plan->chunk_limit, plan->budget_tokens,
                  config_.max_model_len - request->num_computed_tokens - 1});
    const auto num_blocks_before =
        static_cast<int32_t>(kv_cache_->BlockTable(request->slot).size());
    if (!MakeRoom(&i, num_tokens, plan)) continue;  // it is gone from i
    scheduled_.push_back({request, num_tokens, num_blocks_before, ScheduledKind::kRunning});
    plan->budget_tokens -= num_tokens;
    plan->has_prefill |= request->mid_prefill;
    ++i;
  }
}

// Gets blocks for the next num_tokens of running_[*running_idx], preempting others as often as
// needed; *running_idx follows the request. False when the request itself had to go.
bool Scheduler::MakeRoom(size_t* running_idx, int32_t num_tokens, StepPlan* plan) {
  Request* request = running_[*running_idx];
  const int32_t num_tokens_after = request->num_computed_tokens + num_tokens;
  while (!kv_cache_->TryGrow(request->slot, request->sequence(), num_tokens_after)) {
    const size_t victim_idx = PickVictim();
    Request* victim = running_[victim_idx];
    TakeBack(victim, plan);
    Preempt(victim_idx, plan->now);
    plan->preempted = true;
    if (victim == request) return false;
    if (victim_idx < *running_idx) --*running_idx;
  }
  return true;
}

size_t Scheduler::PickVictim() const {
  if (config_.policy == SchedulingPolicy::kFcfs) return running_.size() - 1;
  const auto key = [](const Request* r) {
    return std::tie(r->wire.priority, r->wire.arrival_time);
  };
  const auto victim =
      std::max_element(running_.begin(), running_.end(),
                       [&](const Request* a, const Request* b) { return key(a) < key(b); });
  return static_cast<size_t>(victim - running_.begin());
}

// Undoes what this step has given to a victim. Its blocks filled by tokens that now will not run
// were made findable when they were scheduled: nobody may hit them.
void Scheduler::TakeBack(Request* request, StepPlan* plan) {
  const auto entry = std::find_if(scheduled_.begin(), scheduled_.end(),
                                  [=](const ScheduledEntry& e) { return e.request == request; });
  if (entry == scheduled_.end()) return;
  plan->budget_tokens += entry->num_tokens;
  scheduled_.erase(entry);
  kv_cache_->ForgetBeyond(request->slot, request->num_computed_tokens);
}

void Scheduler::Preempt(size_t running_idx, double now) {
  Request* request = running_[running_idx];
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(running_idx));
  Release(request);
  request->num_computed_tokens = 0;
  request->status = wire::RequestStatus::kPreempted;
  ++request->num_preemptions;
  request->events.push_back({wire::EventType::kPreempted, now});
  waiting_->AddFirst(request);
}

void Scheduler::ScheduleWaiting(StepPlan* plan) {
  if (pause_state_ == PauseState::kUnpaused) {
    while (!waiting_->empty() && plan->budget_tokens > 0 &&
           running_.size() < static_cast<size_t>(config_.max_num_active_seqs)) {
      if (!TryAdmit(waiting_->First(), plan)) break;
    }
  }
  if (!plan->hold_prefills) cadence_.NoteAdmissionPass(!waiting_->empty());
}

// False ends the pass: requests behind the first are not looked at, so none is starved.
bool Scheduler::TryAdmit(Request* request, StepPlan* plan) {
  const bool looks_up = kv_cache_->config().enable_prefix_caching && ReadsPrefixCache(*request);
  Admission admission;
  if (looks_up) {
    // At least the last token is computed: its logits are needed.
    admission.cached_prefix =
        kv_cache_->FindCachedPrefix(request->block_hashes, request->num_tokens() - 1);
  }
  const int32_t num_hit_tokens =
      static_cast<int32_t>(admission.cached_prefix.size()) * kv_cache_->config().block_size;
  const int32_t num_left = request->num_tokens() - num_hit_tokens;
  if (num_left > 1 && plan->hold_prefills) return false;
  int32_t num_tokens = std::min(num_left, plan->chunk_limit);
  if (!config_.enable_chunked_prefill && num_tokens > plan->budget_tokens) return false;
  num_tokens = std::min(num_tokens, plan->budget_tokens);

  const RequestSlot slot = free_slots_.back();
  admission.num_tokens = num_hit_tokens + num_tokens;
  admission.num_tokens_to_fit = config_.reserve_full_isl ? request->num_tokens() : 0;
  admission.keep_watermark = !running_.empty();
  if (!kv_cache_->TryAdmit(slot, request->sequence(), admission)) return false;

  if (looks_up) CountLookup(*request, num_hit_tokens);
  const bool resumed = request->status == wire::RequestStatus::kPreempted;
  Admit(request, slot, num_hit_tokens, plan->now);
  scheduled_.push_back(
      {request, num_tokens, 0, resumed ? ScheduledKind::kResumed : ScheduledKind::kNew});
  plan->budget_tokens -= num_tokens;
  plan->has_prefill |= num_left > 1;
  return true;
}

void Scheduler::Admit(Request* request, RequestSlot slot, int32_t num_hit_tokens, double now) {
  waiting_->Remove(request);
  free_slots_.pop_back();
  by_slot_[static_cast<size_t>(Index(slot))] = request;
  running_.push_back(request);
  request->slot = slot;
  request->status = wire::RequestStatus::kRunning;
  request->num_computed_tokens = num_hit_tokens;
  if (request->num_preemptions == 0) request->num_cached_tokens = num_hit_tokens;
  request->events.push_back({wire::EventType::kScheduled, now});
  // Room for all it can become, so that decoding does not allocate.
  const int64_t max_tokens =
      std::min<int64_t>(config_.max_model_len, int64_t{request->num_prompt_tokens} +
                                                   request->wire.sampling_params.max_tokens);
  request->token_ids.reserve(static_cast<size_t>(max_tokens));
  if (kv_cache_->config().enable_prefix_caching) {
    request->block_hashes.reserve(static_cast<size_t>(max_tokens / kv_cache_->config().block_size));
  }
}

void Scheduler::CountLookup(const Request& request, int32_t num_hit_tokens) {
  wire::PrefixCacheStats& stats = prefix_cache_stats_;
  const bool again = request.num_preemptions > 0;
  (again ? stats.preempted_requests : stats.requests) += 1;
  (again ? stats.preempted_queries : stats.queries) += request.num_tokens();
  (again ? stats.preempted_hits : stats.hits) += num_hit_tokens;
}

// Writes the step down and moves num_computed_tokens to where the step will have brought them.
void Scheduler::BuildOutput() {
  output_.Clear();
  output_.freed_slots.swap(freed_slots_);
  for (const ScheduledEntry& entry : scheduled_) {
    Request* request = entry.request;
    const auto request_idx = static_cast<int32_t>(output_.requests.size());
    const auto new_blocks =
        kv_cache_->BlockTable(request->slot).subspan(static_cast<size_t>(entry.num_blocks_before));
    output_.requests.push_back({
        .slot = request->slot,
        .num_computed_tokens = request->num_computed_tokens,
        .num_scheduled_tokens = entry.num_tokens,
        .new_blocks_begin = static_cast<int32_t>(output_.new_block_ids.size()),
        .num_new_blocks = static_cast<int32_t>(new_blocks.size()),
        .kind = entry.kind,
        .needs_sample = entry.num_tokens == request->num_uncomputed_tokens(),
    });
    output_.new_block_ids.insert(output_.new_block_ids.end(), new_blocks.begin(), new_blocks.end());
    if (entry.kind != ScheduledKind::kRunning) {
      output_.admitted.push_back({.request_idx = request_idx,
                                  .request_id = &request->id(),
                                  .sampling_params = &request->wire.sampling_params,
                                  .token_ids = request->token_ids,
                                  .num_prompt_tokens = request->num_prompt_tokens});
    }
    output_.num_scheduled_tokens += entry.num_tokens;
    request->num_computed_tokens += entry.num_tokens;
    request->mid_prefill = request->num_uncomputed_tokens() > 0;
  }
}

// ---- Update ----

void Scheduler::Update(const SchedulerOutput& step, ModelOutput* result, ClientOutputs* outputs) {
  CHECK_EQ(result->sampled_token_ids.size(), step.requests.size());
  auto extra = result->results.begin();
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const ScheduledRequest& scheduled = step.requests[i];
    RequestResult* own = nullptr;
    if (extra != result->results.end() && static_cast<size_t>(extra->request_idx) == i) {
      own = &*extra++;
    }
    Request* request = by_slot_[static_cast<size_t>(Index(scheduled.slot))];
    if (request == nullptr) continue;  // aborted while the step ran
    if (own != nullptr && !own->status.ok()) {
      Fail(request, own, outputs);
    } else if (scheduled.needs_sample) {
      AppendToken(request, result->sampled_token_ids[i], own, outputs);
    }
  }
  RemoveFinished();
  for (const FinishedRequest& finished : finished_) {
    outputs->AddFinished(finished.client_index, finished.id);
  }
  finished_.clear();
}

void Scheduler::AppendToken(Request* request, TokenId token, RequestResult* extra,
                            ClientOutputs* outputs) {
  CHECK_GE(token, 0) << "no token for " << request->id();
  request->token_ids.push_back(token);
  kv_cache_->ExtendHashes(request->token_ids, request->cache_salt(), &request->block_hashes);
  const std::optional<Stop> stop = CheckStop(request->wire.sampling_params, request->token_ids,
                                             request->num_prompt_tokens, config_.max_model_len);
  wire::EngineCoreOutput& record = outputs->AddOutput(request->wire.client_index, request->id());
  record.new_token_ids.push_back(token);
  record.events.swap(request->events);
  if (!request->has_output) record.prefill_stats = PrefillStatsOf(*request);
  request->has_output = true;
  if (extra != nullptr) {
    record.num_nans_in_logits = extra->num_nans_in_logits;
    if (extra->logprobs) record.new_logprobs = std::move(*extra->logprobs);
    if (extra->prompt_logprobs) record.new_prompt_logprobs = std::move(*extra->prompt_logprobs);
  }
  if (stop) {
    record.finish_reason = FinishReasonOf(stop->status);
    record.stop_reason = stop->reason;
    Finish(request, stop->status);
  }
}

// Ends a request that the executor could not go on with. Nothing it has put into the cache or read
// from there is trusted: blocks with NaN in them would fail every later request with this prefix.
void Scheduler::Fail(Request* request, RequestResult* extra, ClientOutputs* outputs) {
  wire::EngineCoreOutput& record = outputs->AddOutput(request->wire.client_index, request->id());
  record.finish_reason = wire::FinishReason::kError;
  record.num_nans_in_logits = extra->num_nans_in_logits;
  record.events.swap(request->events);
  record.error = wire::EngineCoreError{.code = std::string(wire::kErrorInternal),
                                       .message = extra->status.message()};
  kv_cache_->ForgetBeyond(request->slot, 0);
  Finish(request, wire::RequestStatus::kFinishedError);
}

wire::PrefillStats Scheduler::PrefillStatsOf(const Request& request) const {
  wire::PrefillStats stats;
  const int32_t num_registered = kv_cache_->NumRegisteredTokens(request.slot);
  stats.num_prompt_tokens = request.num_prompt_tokens;
  stats.num_cached_tokens = stats.num_local_cached_tokens = request.num_cached_tokens;
  stats.num_computed_tokens = request.num_prompt_tokens - request.num_cached_tokens;
  stats.num_cache_creation_tokens =
      std::max(0, std::min(num_registered, request.num_prompt_tokens) - request.num_cached_tokens);
  return stats;
}

// Gives back blocks and slot of a request that runs.
void Scheduler::Release(Request* request) {
  kv_cache_->Free(request->slot);
  by_slot_[static_cast<size_t>(Index(request->slot))] = nullptr;
  free_slots_.push_back(request->slot);
  freed_slots_.push_back(request->slot);
  request->slot = RequestSlot{-1};
}

// The request leaves its queue and its blocks; the caller takes it out of running_ and requests_.
void Scheduler::Finish(Request* request, wire::RequestStatus status) {
  if (request->status == wire::RequestStatus::kRunning) {
    Release(request);
  } else {
    waiting_->Remove(request);
  }
  request->status = status;
  finished_.push_back({request->id(), request->wire.client_index});
}

void Scheduler::RemoveFinished() {
  if (finished_.empty()) return;
  std::erase_if(running_, [](const Request* request) { return request->finished(); });
  for (const FinishedRequest& finished : finished_) {
    const auto entry = requests_.find(finished.id);
    if (entry != requests_.end() && entry->second->finished()) requests_.erase(entry);
  }
}

// ---- the rest ----

wire::SchedulerStats Scheduler::TakeStats() {
  wire::SchedulerStats stats;
  stats.num_running_reqs = static_cast<int64_t>(running_.size());
  stats.num_waiting_reqs = static_cast<int64_t>(waiting_->size());
  stats.step_counter = num_steps_;
  stats.kv_cache_usage = kv_cache_->pool().Usage();
  stats.prefix_cache_stats = std::exchange(prefix_cache_stats_, {});
  for (BlockEviction& eviction : kv_cache_->TakeEvictions()) {
    stats.kv_cache_eviction_events.push_back(
        {eviction.lifetime_s, eviction.idle_s, std::move(eviction.reuse_gaps_s)});
  }
  return stats;
}

bool Scheduler::ResetPrefixCache(bool preempt_running, double now) {
  if (preempt_running) {
    while (!running_.empty()) Preempt(running_.size() - 1, now);
  }
  if (!kv_cache_->TryReset()) return false;
  prefix_cache_stats_.reset = true;
  return true;
}

bool Scheduler::HasRunnable() const {
  switch (pause_state_) {
    case PauseState::kUnpaused:
      return !running_.empty() || !waiting_->empty();
    case PauseState::kPausedNew:
      return !running_.empty();
    case PauseState::kPausedAll:
      return false;
  }
  return false;
}

const Request* Scheduler::Find(const RequestId& id) const {
  const auto entry = requests_.find(id);
  return entry == requests_.end() ? nullptr : entry->second.get();
}

std::string Scheduler::DebugString() const {
  std::ostringstream text;
  const BlockPool& pool = kv_cache_->pool();
  text << "steps " << num_steps_ << ", running " << running_.size() << ", waiting "
       << waiting_->size() << ", blocks held " << pool.num_blocks() - 1 - pool.num_free() << " of "
       << pool.num_blocks() - 1 << ", cached hashes " << pool.num_cached_hashes() << "\n";
  const auto line = [&](const Request* request) {
    text << "  " << request->id() << " " << wire::RequestStatusName(request->status) << " tokens "
         << request->num_prompt_tokens << "+" << request->num_output_tokens() << " computed "
         << request->num_computed_tokens << " slot " << Index(request->slot) << " preempted "
         << request->num_preemptions;
    if (request->status == wire::RequestStatus::kRunning) {
      text << " blocks";
      for (BlockId block : kv_cache_->BlockTable(request->slot)) text << " " << Index(block);
    }
    text << "\n";
  };
  for (const Request* request : running_) line(request);
  for (const Request* request : waiting_->InOrder()) line(request);
  return text.str();
}

}  // namespace tandem
