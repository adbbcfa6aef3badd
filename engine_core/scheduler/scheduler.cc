#include "engine_core/scheduler/scheduler.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "common/check.h"
#include "proto_msgpack/prefix_cache_stats.h"

namespace tandem {
namespace {

SchedulerConfig WithDefaults(SchedulerConfig config) {
  CHECK_GT(config.max_num_seqs, 0);
  CHECK_GT(config.max_model_len, 0);
  if (config.max_num_active_seqs == 0) config.max_num_active_seqs = config.max_num_seqs;
  if (config.max_num_scheduled_tokens == 0) {
    config.max_num_scheduled_tokens = config.max_num_batched_tokens;
  }
  // A padded request must fit a step.
  const int32_t most = std::min(config.max_num_scheduled_tokens,
                                config.max_num_batched_tokens - config.drafts.num_input_slots);
  if (1 + config.drafts.num_speculative_tokens > most) config.drafts.pads_new_requests = false;
  return config;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, KvCacheManager* kv_cache,
                     KvConnector* connector)
    : parts_(WithDefaults(config), kv_cache, connector),
      running_pass_(&parts_),
      waiting_pass_(&parts_),
      update_(&parts_),
      plan_(parts_.config.max_num_seqs),
      steps_(parts_.config.max_num_seqs),
      cadence_(parts_.config.prefill_schedule_interval),
      pace_(parts_.config.step_time_limit, parts_.config.image_time_limit) {
  CHECK_LE(parts_.config.max_num_seqs, kv_cache->config().max_num_seqs);
  CHECK(connector == nullptr || kv_cache->config().groups == LayerGroups())
      << "a connector may read blocks that leave the window while their request runs";
}

Status Scheduler::Add(wire::EngineCoreRequest from_wire, double now, const RequestNeeds& needs) {
  const RequestId& id = from_wire.request_id;
  if (parts_.requests.Find(id) != nullptr || parts_.transfers.Keeps(id)) {
    return AlreadyExistsError("request id " + id + " is in use");
  }
  const int32_t most_tokens =
      std::min(parts_.config.max_num_scheduled_tokens,
               parts_.config.max_num_batched_tokens - parts_.drafts.num_input_slots());
  RETURN_IF_ERROR(parts_.encoder_cache.Check(needs.images.get(), most_tokens));
  const Adapter& adapter = needs.adapter;
  CHECK(adapter.id == 0 || (parts_.config.max_loras > 0 && !adapter.name.empty()))
      << "adapter " << adapter.id;
  Request* request = parts_.requests.Add(std::move(from_wire), needs, now);
  CHECK(request->num_prompt_tokens > 0 &&
        request->num_tokens() <= request->most_computed_tokens(parts_.config.max_model_len))
      << request->id() << " has " << request->num_tokens() << " tokens, "
      << request->num_prompt_tokens << " of them prompt";
  if (!needs.awaits_adapter) parts_.requests.ExtendHashes(request);
  return OkStatus();
}

void Scheduler::EndAdapterWait(const RequestId& id, int64_t order, const StatusOr<Adapter>& adapter,
                               ClientOutputs* outputs) {
  Request* request = parts_.requests.Find(id);
  if (request == nullptr || request->order != order) return;
  if (adapter.ok()) {
    parts_.requests.EndAdapterWait(request, *adapter);
  } else {
    update_.EndWithError(request, adapter.status(), outputs);
    parts_.requests.RemoveFinished();
  }
}

void Scheduler::EndGrammarWait(const GrammarResult& result, ClientOutputs* outputs) {
  Request* request = parts_.requests.Find(result.request_id);
  if (request == nullptr || request->order != result.request_order) return;
  const bool waits = request->status == wire::RequestStatus::kWaitingForStructuredOutputGrammar;
  CHECK(waits || request->holds_blocks) << request->id() << " does not wait for a grammar";
  if (result.status.ok()) {
    if (waits) parts_.requests.EndWait(request);
  } else {
    update_.EndWithError(request, result.status, outputs);
    parts_.requests.RemoveFinished();
  }
}

void Scheduler::AwaitGrammar(const RequestId& id, double now) {
  Request* request = parts_.requests.Find(id);
  CHECK(request != nullptr && request->needs_grammar) << id;
  parts_.requests.AwaitGrammar(request, now);
}

bool Scheduler::Abort(const RequestId& id) {
  Request* request = parts_.requests.Find(id);
  if (request == nullptr) {
    parts_.transfers.GiveUp(id);
    return DropHeld([&](const HeldOutput& held) { return held.record.request_id == id; });
  }
  parts_.requests.Abort(request);
  return true;
}

// The client learns that the request has ended, as by any abort.
template <class Predicate>
bool Scheduler::DropHeld(Predicate predicate) {
  const std::vector<HeldOutput> dropped = parts_.transfers.DropOutputs(predicate);
  for (const HeldOutput& held : dropped) {
    parts_.requests.finished().push_back({held.record.request_id, held.client_index});
  }
  return !dropped.empty();
}

std::vector<FinishedRequest> Scheduler::AbortAll() {
  return AbortIf([](const Request&) { return true; });
}

std::vector<FinishedRequest> Scheduler::AbortClient(int32_t client_index) {
  DropHeld([=](const HeldOutput& held) { return held.client_index == client_index; });
  return AbortIf([=](const Request& request) { return request.wire.client_index == client_index; });
}

template <class Predicate>
std::vector<FinishedRequest> Scheduler::AbortIf(Predicate predicate) {
  std::vector<FinishedRequest> aborted;
  for (Request* request : parts_.requests.InOrderOfAdding()) {
    if (!predicate(*request)) continue;
    aborted.push_back({request->id(), request->wire.client_index});
    parts_.requests.Abort(request);
  }
  return aborted;
}

const SchedulerOutput& Scheduler::Schedule(double now) {
  now_ = now;
  parts_.kv_cache.SetNow(now);
  plan_.Begin(now, LimitsOfStep());
  parts_.encoder_cache.BeginStep(NumSlicesOfStep());
  if (pause_state_ != PauseState::kPausedAll) {
    running_pass_.Run(&plan_);
    // No admission when running requests lack blocks.
    if (!plan_.is_short()) {
      waiting_pass_.Run(&plan_);
      if (!plan_.holds_prefills()) {
        cadence_.NoteAdmissionPass(num_waiting() > parts_.requests.num_passed_over());
      }
    }
    if (!plan_.empty()) {
      ++num_steps_;
      cadence_.NoteStep(plan_.has_prefill());
    }
  }
  Step* step = newest_step_ = steps_.Begin();
  step->output.freed_slots.swap(parts_.requests.freed_slots());
  parts_.encoder_cache.TakeChanges(&step->output);
  step->output.polls_kv_transfers = parts_.transfers.has_connector();
  plan_.Build(parts_.kv_cache, parts_.drafts, &parts_.thinking_budgets, step);
  return step->output;
}

StepPlan::Limits Scheduler::LimitsOfStep() {
  const std::vector<Request*>& running = parts_.requests.running();
  StepPlan::Limits limits;
  limits.budget_tokens = parts_.config.max_num_scheduled_tokens;
  limits.input_tokens = parts_.config.max_num_batched_tokens;
  limits.input_slots = parts_.drafts.num_input_slots();
  limits.chunk_limit = std::min(limits.budget_tokens, limits.input_tokens);
  limits.admits_new = pause_state_ == PauseState::kUnpaused;
  const auto num_unfinished = static_cast<int32_t>(running.size() + num_waiting());
  if (parts_.config.long_prefill_token_threshold > 0 && num_unfinished > 1) {
    limits.chunk_limit = parts_.config.long_prefill_token_threshold;
    if (parts_.config.long_prefill_token_threshold_adaptive) {
      limits.chunk_limit =
          std::max(limits.chunk_limit, parts_.config.max_num_batched_tokens / num_unfinished);
    }
  }
  limits.hold_prefills = cadence_.Holds(
      std::ranges::any_of(running, [](const Request* r) { return !r->mid_prefill; }));
  limits.prefill_tokens = pace_.TokensOfNextStep(NumDecodes(), parts_.encoder_cache.is_under_way());
  return limits;
}

// Requests of the next step that decode. A request whose last token is under way needs no further
// step; those of a pipeline are spread over its steps.
int32_t Scheduler::NumDecodes() const {
  const auto num_decodes = static_cast<int32_t>(std::ranges::count_if(
      running(), [](const Request* r) { return !r->mid_prefill && !r->will_reach_max_tokens(); }));
  const int32_t num_steps = parts_.config.num_pipeline_steps;
  return (num_decodes + num_steps - 1) / num_steps;
}

int32_t Scheduler::NumSlicesOfStep() {
  if (parts_.encoder_cache.capacity() == 0 || pause_state_ == PauseState::kPausedAll) return 0;
  return pace_.SlicesOfNextStep(NumDecodes());
}

void Scheduler::ObserveStep(const SchedulerOutput& step, double seconds) {
  const auto num_requests = static_cast<int32_t>(step.requests.size());
  const int32_t num_slices = step.NumSlices();
  if (num_requests == 0 && num_slices == 0) return;
  pace_.Observe(num_requests - step.num_prefills, step.num_prefill_tokens, seconds, num_slices);
}

void Scheduler::Update(const SchedulerOutput& output, ModelOutput* result, ClientOutputs* outputs) {
  update_.Apply(steps_.End(output), result, outputs);
  parts_.requests.RemoveFinished();
  for (const FinishedRequest& finished : parts_.requests.finished()) {
    if (parts_.transfers.HoldsOutput(finished.id)) continue;
    outputs->AddFinished(finished.client_index, finished.id);
  }
  parts_.requests.finished().clear();
}

wire::SchedulerStats Scheduler::TakeStats() {
  wire::SchedulerStats stats;
  stats.num_running_reqs = static_cast<int64_t>(num_running());
  stats.num_skipped_waiting_reqs = static_cast<int64_t>(parts_.requests.num_passed_over());
  stats.num_waiting_reqs = static_cast<int64_t>(num_waiting()) - stats.num_skipped_waiting_reqs;
  stats.step_counter = num_steps_;
  stats.running_lora_adapters = adapters().Running();
  stats.waiting_lora_adapters = adapters().Waiting();
  stats.kv_cache_usage = parts_.kv_cache.pool().Usage();
  stats.prefix_cache_stats = std::exchange(waiting_pass_.prefix_cache_stats(), {});
  stats.prefix_cache_stats.reset = std::exchange(prefix_cache_was_reset_, false);
  stats.spec_decoding_stats = parts_.drafts.TakeStats();
  if (parts_.transfers.has_connector()) AddTransferStats(&stats);
  for (BlockEviction& eviction : parts_.kv_cache.TakeEvictions()) {
    stats.kv_cache_eviction_events.push_back(
        {eviction.lifetime_s, eviction.idle_s, std::move(eviction.reuse_gaps_s)});
  }
  return stats;
}

void Scheduler::AddTransferStats(wire::SchedulerStats* stats) {
  int64_t counts[] = {0, 0, 0, 0};
  for (const RequestQueue* queue : {&parts_.requests.waiting(), &parts_.requests.holding()}) {
    for (Request* request = queue->First(); request != nullptr; request = queue->Next(request)) {
      ++counts[static_cast<size_t>(request->fetch)];
    }
  }
  const auto count = [&](KvFetch stage) { return counts[static_cast<size_t>(stage)]; };
  stats->num_kv_fetch_reqs_by_stage = {{"waiting_to_start", count(KvFetch::kWaitingToStart)},
                                       {"in_progress", count(KvFetch::kInProgress)},
                                       {"completed_waiting", count(KvFetch::kCompleted)}};
  wire::PrefixCacheStats& looked_up = waiting_pass_.connector_stats();
  looked_up.reset = std::exchange(connector_was_reset_, false);
  stats->connector_prefix_cache_stats = wire::Packed(std::exchange(looked_up, {}));
  stats->kv_connector_stats = parts_.transfers.TakeStats();
}

bool Scheduler::ResetPrefixCache(bool preempt_running, double now, bool reset_connector) {
  const bool done = TryResetLocal(preempt_running, now);
  if (!reset_connector) return done;
  if (!parts_.transfers.has_connector()) return false;
  connector_was_reset_ = parts_.transfers.Reset();
  return done && connector_was_reset_;
}

bool Scheduler::TryResetLocal(bool preempt_running, double now) {
  if (preempt_running) {
    // They may resume in the next step, too soon to deliver their tokens in flight in order.
    while (num_running() > 0 && parts_.transfers.CanRelease(*running().back())) {
      parts_.requests.Preempt(running().back(), StaleOutput::kDrop, now);
    }
  }
  if (!parts_.kv_cache.TryReset()) return false;
  prefix_cache_was_reset_ = true;
  return true;
}

Work Scheduler::pending_work() const {
  const RequestTable& requests = parts_.requests;
  const bool runs = pause_state_ != PauseState::kPausedAll && num_running() > 0;
  const bool admits_held = pause_state_ == PauseState::kPausedNew && !requests.holding().empty();
  const bool admits =
      pause_state_ == PauseState::kUnpaused && num_waiting() > requests.num_awaiting_events();
  if (runs || admits_held || admits) return Work::kRequests;
  if (!requests.finished().empty() || !requests.freed_slots().empty() ||
      parts_.encoder_cache.has_dropped() || parts_.transfers.holds_outputs()) {
    return Work::kNotices;
  }
  if (parts_.transfers.num_promised() > 0) return Work::kPromises;
  return parts_.transfers.keeps_any() ? Work::kTransfers : Work::kNone;
}

std::string Scheduler::DebugString() const {
  std::ostringstream text;
  const BlockPool& pool = parts_.kv_cache.pool();
  text << "steps " << num_steps_ << ", running " << num_running() << ", waiting " << num_waiting()
       << ", blocks held " << pool.num_blocks() - 1 - pool.num_free() << " of "
       << pool.num_blocks() - 1 << ", cached hashes " << pool.num_cached_hashes();
  const EncoderCache& encoder_cache = parts_.encoder_cache;
  if (encoder_cache.capacity() > 0) {
    text << ", rows of images held " << encoder_cache.num_held() << ", kept "
         << encoder_cache.num_kept() << " of " << encoder_cache.capacity();
  }
  text << "\n" << parts_.requests.DebugString();
  return text.str();
}

}  // namespace tandem
