#include "engine_core/engine_core.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <variant>

#include "common/log.h"
#include "common/log_event.h"
#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/executor/prompt_scores.h"
#include "engine_core/flight_recorder.h"
#include "engine_core/read_embeddings.h"
#include "engine_core/read_images.h"
#include "engine_core/request_check.h"
#include "engine_core/step_log.h"
#include "engine_core/utility_calls.h"
#include "engine_core/watchdog.h"
#include "proto_msgpack/choices.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/engine_end.h"
#include "proto_msgpack/multimodal.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

SchedulerConfig WithLimits(const EngineCoreOptions& options, const ExecutorLimits& limits) {
  SchedulerConfig config = options.scheduler;
  config.overlaps_steps = options.async_scheduling && limits.max_steps_in_flight > 1;
  config.max_num_seqs = limits.max_num_seqs;
  config.max_num_batched_tokens = limits.max_num_batched_tokens;
  config.max_model_len = limits.max_model_len;
  config.vocab_size = limits.vocab_size;
  config.drafts = limits.drafts;
  config.encoder_cache_rows = limits.images ? limits.max_num_batched_tokens : 0;
  config.needs_whole_images |= limits.images && limits.images->are_whole;
  if (!limits.images) config.image_time_limit = {};
  return config;
}

Status CheckLimits(const EngineCoreOptions& options, const ExecutorLimits& limits) {
  const int32_t num_fitting = MaxModelLenOf(limits.num_blocks - 1, limits);
  if (num_fitting < limits.max_model_len) {
    return ResourceExhaustedError("the KV cache holds " + std::to_string(num_fitting) +
                                  " tokens, one request may need " +
                                  std::to_string(limits.max_model_len) +
                                  ": lower --max-model-len, or raise --kv-cache-memory-bytes or "
                                  "--num-gpu-blocks-override");
  }
  if (limits.max_model_len < 2 || limits.max_num_seqs < 1 || limits.max_num_batched_tokens < 1) {
    return FailedPreconditionError(
        "max_model_len must be at least 2, max_num_seqs and max_num_batched_tokens at least 1");
  }
  const int32_t num_inputs = limits.max_num_batched_tokens - limits.drafts.num_input_slots;
  if (num_inputs < 1) {
    return FailedPreconditionError(
        "max_num_batched_tokens must be more than what the drafter takes for a request, " +
        std::to_string(limits.drafts.num_input_slots));
  }
  if (options.scheduler.max_num_active_seqs > limits.max_num_seqs) {
    return FailedPreconditionError("max_num_active_seqs is above max_num_seqs");
  }
  if (!options.scheduler.enable_chunked_prefill && num_inputs < limits.max_model_len) {
    return FailedPreconditionError(
        "without chunked prefill max_num_batched_tokens must be at least max_model_len");
  }
  return OkStatus();
}

wire::EngineCoreError ToError(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnimplemented:
    case StatusCode::kAlreadyExists:
      return {std::string(wire::kErrorValidation), status.message(), false};
    case StatusCode::kUnavailable:
      return {std::string(wire::kErrorEnginePaused), status.message(), true};
    case StatusCode::kResourceExhausted:
      return {std::string(wire::kErrorInternal), status.message(), true};
    default:
      return {std::string(wire::kErrorInternal), status.message(), false};
  }
}

}  // namespace

StatusOr<std::unique_ptr<EngineCore>> EngineCore::Create(const EngineCoreOptions& options,
                                                         Executor* executor, const Clock* clock) {
  RETURN_IF_ERROR(CheckLimits(options, executor->limits()));
  return std::unique_ptr<EngineCore>(new EngineCore(options, executor, clock));
}

EngineCore::EngineCore(const EngineCoreOptions& options, Executor* executor, const Clock* clock)
    : options_(options),
      executor_(executor),
      clock_(clock),
      kv_cache_(CacheWithLimits(options.kv_cache, executor->limits())),
      scheduler_(WithLimits(options, executor->limits()), &kv_cache_, options.kv_connector),
      adapters_(options.max_cpu_loras, options.adapter_loads),
      outputs_(options.engine_index) {}

void EngineCore::Handle(EngineEvent event) {
  std::visit([this](auto& kind) { On(std::move(kind)); }, event);
}

void EngineCore::On(wire::EngineInput input) {
  std::visit([this](auto& message) { On(std::move(message)); }, input);
}

void EngineCore::HandleAborts(const EngineEvent& event) {
  const auto* input = std::get_if<wire::EngineInput>(&event);
  if (input == nullptr) return;
  if (const auto* abort = std::get_if<wire::AbortRequest>(input)) On(*abort);
  if (const auto* lost = std::get_if<wire::ClientLost>(input)) On(*lost);
}

bool EngineCore::HasWork() const {
  return NeedsStep() || !in_flight_.empty() || !outputs_.empty() || stats_due_ ||
         pending_pause_.has_value() || !messages_.empty();
}

bool EngineCore::NeedsStep() const {
  const Work work = scheduler_.pending_work();
  if (!shutting_down()) return work >= Work::kTransfers;
  // The blocks of past requests need not be waited for once the engine is about to end, but for
  // those that others read: as long as running requests may go on.
  const bool waits = work == Work::kPromises && clock_->Monotonic() < *shutdown_deadline_;
  return waits || work >= Work::kNotices;
}

Status EngineCore::Step() {
  RETURN_IF_ERROR(BeginStep());
  EndStep();
  return OkStatus();
}

Status EngineCore::BeginStep(bool may_schedule) {
  if (shutting_down()) EnforceShutdown();
  adapters_.StartLoads(scheduler_.adapters());
  bool runs = false;
  if (may_schedule && NeedsStep()) {
    ASSIGN_OR_RETURN(runs, SubmitStep());
  }
  const bool leaves_it_running = options_.async_scheduling && runs &&
                                 in_flight_.size() < executor_->limits().max_steps_in_flight;
  if (in_flight_.empty() || leaves_it_running) return OkStatus();
  const StepInFlight oldest = in_flight_.front();
  in_flight_.erase(in_flight_.begin());
  result_.Clear();
  if (oldest.submitted) RETURN_IF_ERROR(executor_->Collect(&result_));
  collected_ = oldest.output;
  if (scheduler_.wants_step_times()) ObserveTime(oldest);
  return OkStatus();
}

// The executor begins with a step when it has it and the one before is done.
void EngineCore::ObserveTime(const StepInFlight& step) {
  const double before = std::exchange(collected_at_, clock_->Monotonic());
  scheduler_.ObserveStep(*step.output, collected_at_ - std::max(before, step.submitted_at));
}

// True: a new step in which some request runs.
StatusOr<bool> EngineCore::SubmitStep() {
  const double now = clock_->Monotonic();
  const SchedulerOutput& step = scheduler_.Schedule(now);
  LogStep(step, scheduler_);
  RequestGrammars* grammars = options_.grammars;
  if (grammars != nullptr) {
    if (!step.freed_slots.empty()) grammars->DropEnded(scheduler_);
    grammars->BeginMasks(&scheduler_.newest_step());
  }
  if (step.has_work()) RETURN_IF_ERROR(executor_->Submit(step));
  if (grammars != nullptr) EndMasks();
  // The update of an earlier step reports whatever an empty one would.
  if (step.has_work() || in_flight_.empty()) in_flight_.push_back({&step, step.has_work(), now});
  return !step.empty();
}

// What was sampled for requests without their masks is not used.
void EngineCore::EndMasks() {
  options_.grammars->FinishMasks();
  for (const GrammarFailure& failure : options_.grammars->TakeFailures()) {
    const Request* request = scheduler_.Find(failure.request_id);
    if (request == nullptr || request->order != failure.request_order) continue;
    scheduler_.AwaitGrammar(failure.request_id, clock_->Monotonic());
    GrammarResult result = {failure.request_id, failure.request_order, OkStatus()};
    if (!failure.starts_again) {
      result.status = failure.status;
    } else if (!options_.grammars->Await(*request)) {
      continue;
    }
    scheduler_.EndGrammarWait(result, &outputs_);
  }
}

void EngineCore::EndStep() {
  if (collected_ != nullptr) {
    scheduler_.Update(*std::exchange(collected_, nullptr), &result_, &outputs_);
    if (options_.grammars != nullptr) options_.grammars->Foresee(scheduler_);
    outputs_.SetStats(scheduler_.TakeStats());
  } else if (stats_due_) {
    outputs_.SetStats(scheduler_.TakeStats());
  }
  stats_due_ = false;
  outputs_.Take(clock_->Monotonic(), &messages_);
  FinishPause();
}

void EngineCore::TakeMessages(std::vector<ClientMessage>* messages) {
  messages->clear();
  messages_.swap(*messages);
}

// ---- events ----

void EngineCore::On(wire::EngineCoreRequest request) {
  const Images images = ReadImages(executor_->limits(), &request);
  const int32_t num_choices = request.sampling_params.n;
  const std::optional<std::string> shared = wire::SharedId(request.request_id);
  // Anything else is refused by the check of one request.
  if (num_choices <= 1 || num_choices > wire::kMaxChoices || !shared) {
    return OnOne(std::move(request), images);
  }
  request.sampling_params.n = 1;
  const std::optional<int64_t> seed = request.sampling_params.seed;
  for (int32_t i = 0; i < num_choices; ++i) {
    wire::EngineCoreRequest choice = request;
    choice.request_id = wire::ChoiceId(*shared, i);
    if (seed) choice.sampling_params.seed = wire::ChoiceSeed(*seed, i);
    OnOne(std::move(choice), images);
  }
}

void EngineCore::OnOne(wire::EngineCoreRequest request, const Images& images) {
  const int32_t client_index = request.client_index;
  if (client_index < 0 || client_index >= wire::kMaxClients) {
    LOG_WARNING << "request of client " << client_index << " dropped: no such client";
    return;
  }
  const RequestId id = request.request_id;
  if (shutting_down() || request.abort_immediately) {
    wire::StopReason why;
    if (!request.abort_immediately) why = std::string(wire::kEngineEnds);
    // Sent so that what it would have loaded is given up.
    if (request.abort_immediately) scheduler_.OnRefused(id, request.sampling_params.extra_args);
    AddAbortRecord(client_index, id, why);
    outputs_.AddFinished(client_index, id);
    return;
  }
  if (const Request* same = scheduler_.Find(id);
      same != nullptr && same->wire.client_index == client_index) {
    LOG_WARNING << "frontend " << client_index << " sent request " << id << " again, dropped";
    return;
  }
  const bool lacks_data = images.status().code() == StatusCode::kNotFound;
  const auto lacking = lacks_data ? LackingData(request) : std::vector<std::string>();
  const wire::RawValue extra_args = request.sampling_params.extra_args;
  const Status added = TryAdd(std::move(request), images);
  if (added.ok()) return;
  LOG_EVENT(LogLevel::kDebug, "request refused").Add("id", id).Add("error", added.ToString());
  wire::EngineCoreOutput& record = outputs_.AddOutput(client_index, id);
  record.finish_reason = wire::FinishReason::kError;
  record.error = ToError(added);
  if (!lacks_data) scheduler_.OnRefused(id, extra_args);  // else it is sent again
  if (lacks_data && added.code() == StatusCode::kNotFound) {
    record.error =
        wire::EngineCoreError{std::string(wire::kErrorMultimodalCacheMiss), added.message(), true};
    record.mm_cache_miss_hashes = wire::PackedStrings(lacking);
  }
  outputs_.AddFinished(client_index, id);
}

Status EngineCore::TryAdd(wire::EngineCoreRequest request, const Images& images) {
  if (refuses_new_) return UnavailableError("the engine is paused");
  RETURN_IF_ERROR(images.status());
  ASSIGN_OR_RETURN(auto embeddings, ReadEmbeddings(executor_->limits(), &request));
  RETURN_IF_ERROR(CheckRequest(request, executor_->limits()));
  RETURN_IF_ERROR(CheckPromptScoreIds(executor_->limits().vocab_size, &request));
  if (scheduler_.num_requests() >= options_.max_num_requests) {
    return ResourceExhaustedError("the engine holds " + std::to_string(options_.max_num_requests) +
                                  " requests already");
  }
  RequestNeeds needs = options_.needs_of ? options_.needs_of(request) : RequestNeeds();
  needs.embeddings = std::move(embeddings);
  if (*images != nullptr) {
    RETURN_IF_ERROR(CheckImageBytes(**images));
    needs.images = *images;
  }
  const bool has_grammar = request.sampling_params.structured_outputs.has_value();
  const size_t num_prompt_tokens = request.prompt_token_ids.size();
  if (has_grammar) {
    RETURN_IF_ERROR(CheckGrammar(request));
    needs.grammar = true;
    if (options_.grammars->defaults().enable_in_reasoning) request.reasoning_ended = true;
  }
  ASSIGN_OR_RETURN(const AdapterCache::Place adapter, FindAdapter(request));
  if (adapter.adapter.id != 0) {
    needs.adapter = adapter.adapter;
    needs.awaits_adapter = !adapter.is_there;
  }
  const RequestId id = request.request_id;
  RETURN_IF_ERROR(scheduler_.Add(std::move(request), clock_->Monotonic(), needs));
  LOG_EVENT(LogLevel::kDebug, "request added")
      .Add("id", id)
      .Add("prompt_tokens", num_prompt_tokens);
  if (needs.awaits_adapter) {
    adapters_.Await(needs.adapter.id, {id, scheduler_.Find(id)->order});
    adapters_.StartLoads(scheduler_.adapters());
  }
  if (has_grammar) {
    const Request& added = *scheduler_.Find(id);
    const bool is_there = options_.grammars->Await(added);
    if (is_there) scheduler_.EndGrammarWait({id, added.order, OkStatus()}, &outputs_);
  }
  // No step will report that it waits.
  stats_due_ = stats_due_ || is_paused() || needs.awaits_adapter;
  return OkStatus();
}

Status EngineCore::CheckImageBytes(const RequestImages& images) const {
  const int64_t num_held = scheduler_.NumImageBytes(&images);
  if (num_held == 0 || num_held + NumBytes(images) <= options_.max_image_bytes) return OkStatus();
  return ResourceExhaustedError("the engine holds " + std::to_string(num_held >> 20) +
                                " MiB of images already");
}

Status EngineCore::CheckGrammar(const wire::EngineCoreRequest& request) const {
  if (options_.grammars == nullptr) {
    return UnimplementedError("structured output is not supported by this engine");
  }
  return options_.grammars->Check(*request.sampling_params.structured_outputs);
}

void EngineCore::On(const GrammarCompiled& compiled) {
  if (options_.grammars == nullptr) return;
  for (const GrammarResult& result : options_.grammars->Take(compiled)) {
    scheduler_.EndGrammarWait(result, &outputs_);
  }
}

void EngineCore::On(const wire::AbortRequest& request_ids) {
  for (const RequestId& id : request_ids) scheduler_.Abort(id);
}

void EngineCore::On(const wire::ClientLost& lost) {
  const size_t num_dropped = scheduler_.AbortClient(lost.client_index).size();
  if (num_dropped > 0) {
    LOG_WARNING << "frontend " << lost.client_index << " is gone, " << num_dropped
                << " of its requests dropped";
  }
}

void EngineCore::On(const wire::UtilityRequest& call) {
  if (call.client_index < 0 || call.client_index >= wire::kMaxClients) return;
  if (shutting_down()) {
    Reply(call.client_index, call.call_id, UnavailableError("Server shutting down"));
    return;
  }
  std::optional<StatusOr<wire::RawValue>> result = CallUtility(call, this);
  if (result) Reply(call.client_index, call.call_id, std::move(*result));
}

void EngineCore::Reply(int32_t client_index, uint64_t call_id, StatusOr<wire::RawValue> result) {
  ClientMessage message;
  message.client_index = client_index;
  message.outputs.engine_index = options_.engine_index;
  message.outputs.timestamp = clock_->Monotonic();
  wire::UtilityOutput& output = message.outputs.utility_output.emplace();
  output.call_id = call_id;
  if (result.ok()) {
    output.result = std::move(*result);
  } else {
    output.failure_message = result.status().message();
  }
  messages_.push_back(std::move(message));
}

void EngineCore::AddAbortRecord(int32_t client_index, const RequestId& request_id,
                                const wire::StopReason& why) {
  wire::EngineCoreOutput& record = outputs_.AddOutput(client_index, request_id);
  record.finish_reason = wire::FinishReason::kAbort;
  record.stop_reason = why;
}

void EngineCore::AbortAllWithOutputs(const wire::StopReason& why) {
  for (const FinishedRequest& aborted : scheduler_.AbortAll()) {
    AddAbortRecord(aborted.client_index, aborted.id, why);
  }
}

std::vector<KvCacheEvent> EngineCore::TakeKvEvents() {
  std::vector<KvCacheEvent> events = kv_cache_.TakeEvents();
  if (options_.kv_connector != nullptr) options_.kv_connector->TakeEvents(&events);
  return events;
}

// ---- shutdown ----

bool EngineCore::ResetPrefixCache(bool preempt_running, bool reset_connector) {
  return scheduler_.ResetPrefixCache(preempt_running, clock_->Monotonic(), reset_connector);
}

void EngineCore::On(const ShutdownRequest&) {
  if (shutting_down()) {
    shutdown_deadline_ = clock_->Monotonic();
    return EnforceShutdown();
  }
  shutdown_deadline_ = clock_->Monotonic() + options_.shutdown_timeout_s;
  const int64_t num_promised = scheduler_.transfers().num_promised();
  const std::string promised =
      num_promised == 0 ? "" : " and the KV of " + std::to_string(num_promised) + " for others";
  LOG_INFO << "shutting down with " << scheduler_.num_requests() << " requests" << promised << ", "
           << options_.shutdown_timeout_s << " s to finish";
  EnforceShutdown();
}

void EngineCore::On(const LeaveRequest&) {
  if (shutting_down()) return;
  shutdown_deadline_ = std::numeric_limits<double>::infinity();
  LOG_INFO << "another engine has taken over, " << scheduler_.num_requests()
           << " requests are left to finish here";
  EnforceShutdown();
}

void EngineCore::On(const LogStateRequest&) { LOG_INFO << "[state] " << DebugString(); }

// Aborts requests that are out of time or that nothing would ever let finish.
void EngineCore::EnforceShutdown() {
  const bool out_of_time = clock_->Monotonic() >= *shutdown_deadline_;
  const bool is_stuck = is_paused() || scheduler_.pending_work() != Work::kRequests;
  if (out_of_time) scheduler_.SendHeldOutputs(&outputs_);
  if (scheduler_.num_requests() > 0 && (out_of_time || is_stuck)) {
    AbortAllWithOutputs(std::string(wire::kEngineEnds));
  }
}

// ---- the loop ----

namespace {

void LogEnds(const wire::EngineCoreOutputs& outputs) {
  for (const wire::EngineCoreOutput& output : outputs.outputs) {
    if (!output.finish_reason) continue;
    LOG_EVENT(LogLevel::kDebug, "request finished")
        .Add("id", output.request_id)
        .Add("reason", wire::FinishReasonName(*output.finish_reason));
  }
}

}  // namespace

Status RunEngineLoop(EngineCore* engine, const EngineLoopWire& wire) {
  std::vector<EngineEvent> arrived;
  std::vector<EngineEvent> events;  // not handled yet
  std::vector<ClientMessage> messages;
  const auto send_all = [&] {
    engine->TakeMessages(&messages);
    for (ClientMessage& message : messages) {
      if (LogEnabled(LogLevel::kDebug)) LogEnds(message.outputs);
      wire.send(message.client_index, std::move(message.outputs));
    }
  };
  FlightRecorder* recorder = wire.recorder;
  const auto drain = [&] {
    wire.events->Drain(&arrived);
    if (recorder != nullptr) {
      for (EngineEvent& event : arrived) recorder->AddEvent(&event);
    }
    std::move(arrived.begin(), arrived.end(), std::back_inserter(events));
  };
  const auto wait = [&] {
    LOG_DEBUG << "waits for work";
    if (wire.pulse != nullptr) wire.pulse->BeginRest();
    wire.events->Wait();
    if (wire.pulse != nullptr) wire.pulse->EndRest();
  };
  while (!engine->done() || !events.empty()) {
    if (wire.pulse != nullptr) wire.pulse->Turn();
    const bool wants_checkpoint = recorder != nullptr && recorder->is_checkpoint_due();
    if (wants_checkpoint) recorder->Checkpoint(*engine, &events);
    // One that is due waits until nothing is in flight.
    const bool may_schedule = !wants_checkpoint || !engine->has_steps_in_flight();
    if (!engine->HasWork() && events.empty()) wait();
    drain();
    if (recorder != nullptr) recorder->BeginTurn(may_schedule);
    for (EngineEvent& event : events) engine->Handle(std::move(event));
    events.clear();
    // One for each message that the previous step sent.
    for (size_t i = 0; i < messages.size(); ++i) engine->Recycle(wire.take_spent());
    Status status = engine->BeginStep(may_schedule);
    if (status.ok()) {
      drain();
      if (recorder != nullptr) recorder->EndStep();
      // Each is handled in its turn as well: an ABORT may follow an ADD that still waits here.
      for (const EngineEvent& event : events) engine->HandleAborts(event);
      engine->EndStep();
    }
    send_all();
    if (wire.publish) {
      std::vector<KvCacheEvent> changes = engine->TakeKvEvents();
      if (!changes.empty()) wire.publish(std::move(changes));
    }
    if (!status.ok()) {
      LOG_ERROR << "the executor is lost: " << status.ToString() << "\n" << engine->DebugString();
      return status;
    }
  }
  return OkStatus();
}

}  // namespace tandem
