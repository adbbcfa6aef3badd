#include "frontend/api/generation.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/log_event.h"

namespace tandem {
namespace {

std::optional<double> InMilliseconds(const std::optional<double>& seconds) {
  return seconds ? std::optional(*seconds * 1e3) : std::nullopt;
}

RequestTimings TimingsOf(const RequestStats& stats, int64_t num_tokens) {
  RequestTimings timings;
  timings.time_to_first_token_ms = InMilliseconds(stats.prefill_s());
  timings.generation_time_ms = InMilliseconds(stats.decode_s());
  timings.queue_time_ms = InMilliseconds(stats.queue_s());
  if (timings.generation_time_ms && num_tokens > 1) {
    timings.mean_itl_ms = *timings.generation_time_ms / static_cast<double>(num_tokens - 1);
  }
  if (stats.inference_s().value_or(0) > 0) {
    timings.tokens_per_second = static_cast<double>(num_tokens) / *stats.inference_s();
  }
  return timings;
}

RequestEvent ToRequestEvent(wire::EventType type) {
  return static_cast<RequestEvent>(static_cast<int>(type) - 1);
}

PromptCounts CountsOf(const wire::PrefillStats& prefill) {
  return {prefill.num_computed_tokens, prefill.num_local_cached_tokens,
          prefill.num_external_cached_tokens};
}

FinishedReason MetricReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
    case FinishReason::kToolCalls:
      return FinishedReason::kStop;
    case FinishReason::kLength:
      return FinishedReason::kLength;
    case FinishReason::kAbort:
      return FinishedReason::kAbort;
    case FinishReason::kRepetition:
      return FinishedReason::kRepetition;
    case FinishReason::kError:
      break;
  }
  return FinishedReason::kError;
}

}  // namespace

void TraceRequest(const ProcessedRequest& request, RequestTrace* trace) {
  const wire::SamplingParams& sampling = request.requests.front().sampling_params;
  trace->SetRequest({.top_p = sampling.top_p,
                     .temperature = sampling.temperature,
                     .max_tokens = sampling.max_tokens,
                     .n = request.n});
}

namespace {

// Zeros that stand for embeddings have no text; a prompt of both mostly ends with tokens.
std::span<const TokenId> TextTokens(const wire::EngineCoreRequest& request) {
  if (!request.prompt_embeds.is_nil() && request.prompt_is_token_ids.is_nil()) return {};
  return request.prompt_token_ids;
}

}  // namespace

// One engine request and the sink of its outputs.
class Generation::Choice final : public OutputSink {
 public:
  Choice(Generation* generation, int choice_idx, const wire::EngineCoreRequest& request,
         const OutputOptions& options)
      : id(request.request_id),
        external_id(request.external_req_id.value_or(request.request_id)),
        index(choice_idx),
        num_prompt_tokens(static_cast<int64_t>(request.prompt_token_ids.size())),
        max_tokens(request.pooling_params.is_nil() ? request.sampling_params.max_tokens : 0),
        processor(generation->context_->input_processor->tokenizer(), options, TextTokens(request)),
        generation_(generation) {}

  void OnOutput(const wire::EngineCoreOutput& output, double timestamp) override {
    generation_->OnChoiceOutput(this, output, timestamp);
  }
  void OnError(const Status& status) override { generation_->OnChoiceError(this, status); }
  void OnPrefilled(const wire::EngineCoreOutput& output, double timestamp) override {
    generation_->OnChoicePrefilled(this, output, timestamp);
  }
  void OnEngineChange(int engine) override {
    ApiContext& context = *generation_->context_;
    stats->OnEngineChange(&context.metrics->engine(engine),
                          &context.step_tokens[static_cast<size_t>(engine)]);
  }
  void OnWaited() override { stats->OnWaited(generation_->context_->clock->Monotonic()); }
  void OnNansInLogits() override { stats->OnCorrupted(); }
  // A refused request has not begun, so it does not count as failed.
  void OnFailure(const Status& status) {
    if (started || status.code() == StatusCode::kInternal) stats->OnEngineError();
  }

  const RequestId id;
  const std::string external_id;  // the response's
  const int index;
  const int64_t num_prompt_tokens;
  const int64_t max_tokens;
  OutputProcessor processor;
  std::optional<RequestStats> stats;  // set once the request is with an engine
  bool counts_prompt = false;         // first choice of its prompt: cached tokens count once
  bool prefilled = false;             // by another engine: what that one has cached counts
  bool running = false;
  bool started = false;             // has its first token
  std::vector<TokenId> logged_ids;  // of its output, where outputs are logged

 private:
  Generation* const generation_;
};

std::vector<ChoicePrompt> PromptsOf(const ProcessedRequest& request) {
  std::vector<ChoicePrompt> prompts;
  for (size_t i = 0; i < request.num_choices(); ++i) {
    const size_t p = i / static_cast<size_t>(request.n);
    prompts.push_back({&request.prompt_token_ids[p], &request.prompt_texts[p]});
  }
  return prompts;
}

Generation::Generation(ApiContext* context, ProcessedRequest request, const OutputOptions& options,
                       double arrival_monotonic, std::unique_ptr<AdmissionGate::Ticket> ticket)
    : context_(context),
      request_(std::move(request)),
      arrival_monotonic_(arrival_monotonic),
      ticket_(std::move(ticket)),
      num_unfinished_(request_.requests.size()) {
  int64_t num_queued_tokens = 0;
  for (size_t i = 0; i < request_.requests.size(); ++i) {
    choices_.push_back(
        std::make_unique<Choice>(this, static_cast<int>(i), request_.requests[i], options));
    choices_.back()->counts_prompt = i % static_cast<size_t>(request_.n) == 0;
    num_queued_tokens += choices_.back()->num_prompt_tokens;
  }
  if (ticket_) {
    ticket_->Resize(static_cast<int64_t>(request_.requests.size()), num_queued_tokens);
  }
  usage_.prompt_tokens = request_.num_prompt_tokens;
  if (context_->options.enable_prompt_tokens_details) {
    usage_.cached_tokens = 0;
    usage_.image_tokens = request_.num_image_tokens;
  }
  if (options.message && options.message->has_reasoning()) usage_.reasoning_tokens = 0;
}

Generation::~Generation() {
  Abort();
  Unlist();
}

void Generation::Unlist() {
  if (place_) context_->live_requests.erase(*place_);
  place_.reset();
}

void Generation::End() {
  Unlist();
  done_.Set();
}

LiveRequest Generation::Describe(double now) const {
  LiveRequest live;
  live.id = choices_.front()->id;
  live.phase = "waiting";
  live.num_choices = static_cast<int64_t>(choices_.size());
  live.num_prompt_tokens = usage_.prompt_tokens;
  live.num_output_tokens = usage_.completion_tokens;
  live.age_s = now - arrival_monotonic_;
  for (const auto& choice : choices_) {
    live.max_output_tokens += choice->max_tokens;
    if (!choice->stats) continue;
    const RequestStats& stats = *choice->stats;
    if (choice->started) live.phase = "decoding";
    if (choice->counts_prompt) live.num_cached_tokens += stats.num_cached_tokens();
    live.num_preemptions += stats.num_preemptions();
    if (!live.time_to_first_token_s) live.time_to_first_token_s = stats.time_to_first_token_s();
  }
  return live;
}

Status Generation::Start(ResponseWriter* writer, std::function<void()> on_progress) {
  writer_ = writer;
  on_progress_ = std::move(on_progress);
  if (deadline_ && context_->clock->Monotonic() >= *deadline_) {
    aborted_ = true;
    return Expired(ExpiryStage::kQueue);
  }
  if (trace_) TraceRequest(request_, trace_.get());
  place_ = context_->live_requests.insert(context_->live_requests.end(), this);
  // Prompt by prompt, each with its choices.
  const auto n = static_cast<size_t>(request_.n);
  for (size_t begin = 0; begin < choices_.size(); begin += n) {
    const std::span group = std::span(choices_).subspan(begin, n);
    std::vector<wire::EngineCoreRequest> requests;
    std::vector<OutputSink*> sinks;
    for (const auto& choice : group) {
      requests.push_back(std::move(request_.requests[begin + requests.size()]));
      LogReceived(context_->options.request_log, requests.back(),
                  context_->input_processor->tokenizer());
      sinks.push_back(choice.get());
    }
    const StatusOr<int> engine = context_->engine_client->SubmitChoices(std::move(requests), sinks);
    if (!engine.ok()) {
      aborted_ = true;
      AbortRunning(engine.status());
      return engine.status();
    }
    if (trace_ && begin == 0) trace_->OnSubmitted(context_->clock->Monotonic());
    for (const auto& choice : group) {
      choice->running = true;
      BeginStats(choice.get(), *engine);
    }
  }
  return OkStatus();
}

void Generation::BeginStats(Choice* choice, int engine) {
  EngineMetrics* metrics = &context_->metrics->engine(engine);
  if (choice->counts_prompt) {
    fan_out_.push_back(std::make_unique<FanOutStats>(metrics, static_cast<int>(request_.n)));
  }
  choice->stats.emplace(
      metrics, &context_->step_tokens[static_cast<size_t>(engine)], fan_out_.back().get(),
      RequestStats::Request{arrival_monotonic_, choice->num_prompt_tokens, choice->max_tokens,
                            trace_ ? trace_->trace_id() : TraceId(), context_->clock->Monotonic()});
}

void Generation::Abort() {
  if (aborted_ || done_.is_set()) return;
  aborted_ = true;
  for (const auto& choice : choices_) {
    if (!choice->running) continue;
    LogEvent event(log_level_, __FILE__, __LINE__, "request aborted");
    event.Add("id", choice->id)
        .Add("prompt_tokens", choice->num_prompt_tokens)
        .Add("output_tokens", choice->processor.num_output_tokens());
    if (trace_) event.Add("trace_id", HexText(trace_->trace_id()));
  }
  AbortRunning(OkStatus());
  End();
}

Awaitable<void> Generation::WaitForEnd() {
  if (deadline_) {
    const bool is_in_time = co_await done_.WaitUntil(*deadline_);
    if (!is_in_time) Expire();
  }
  co_await done_.Wait();
}

Status Generation::Expired(ExpiryStage stage) {
  context_->metrics->frontend().requests_expired[stage].Increment();
  if (stage == ExpiryStage::kQueue) {  // one that has begun is finished
    for (const auto& choice : choices_) {
      LogEvent(log_level_, __FILE__, __LINE__, "request expired")
          .Add("id", choice->id)
          .Add("prompt_tokens", choice->num_prompt_tokens);
    }
  }
  return Status(StatusCode::kDeadlineExceeded,
                "the request's time was over before its first token");
}

void Generation::Expire() {
  if (done_.is_set()) return;
  const bool has_begun = std::any_of(choices_.begin(), choices_.end(),
                                     [](const auto& choice) { return choice->started; });
  const Status expired = Expired(has_begun ? ExpiryStage::kDecode : ExpiryStage::kQueue);
  if (!has_begun) {
    error_ = expired;
    AbortRunning(error_);
    End();
    return;
  }
  std::vector<RequestId> ids;
  for (const auto& choice : choices_) {
    if (choice->running) ids.push_back(choice->id);
  }
  context_->engine_client->Abort(ids);
  for (const auto& choice : choices_) {
    if (!choice->running) continue;
    wire::EngineCoreOutput end;
    end.request_id = choice->id;
    end.finish_reason = wire::FinishReason::kLength;
    end.stop_reason = std::string("request_timeout");
    OnChoiceOutput(choice.get(), end, /*timestamp=*/0);  // no tokens, so no interval ends here
  }
}

void Generation::AbortRunning(const Status& why) {
  std::vector<RequestId> ids;
  for (const auto& choice : choices_) {
    if (!choice->running) continue;
    choice->running = false;
    const double now = context_->clock->Monotonic();
    if (why.ok()) {
      choice->stats->OnClientAbort();
      EndTrace(*choice, now, "abort", nullptr);
    } else {
      choice->OnFailure(why);
      EndTrace(*choice, now, "error", &why.message());
    }
    ids.push_back(choice->id);
  }
  if (!ids.empty()) context_->engine_client->Abort(ids);
}

// A prefill's events, and where the prompt's KV came from; its token is nobody's.
void Generation::OnChoicePrefilled(Choice* choice, const wire::EngineCoreOutput& output,
                                   double timestamp) {
  choice->prefilled = true;
  for (const wire::EngineCoreEvent& event : output.events) {
    const bool is_counted = choice->counts_prompt || event.type != wire::EventType::kPreempted;
    if (is_counted) choice->stats->OnEvent(ToRequestEvent(event.type), event.timestamp);
  }
  std::optional<PromptCounts> prompt;
  if (output.prefill_stats && choice->counts_prompt) {
    prompt = CountsOf(*output.prefill_stats);
    CountCached(*output.prefill_stats);
  }
  choice->stats->OnPrefilled(timestamp, context_->clock->Monotonic(), prompt);
}

void Generation::CountCached(const wire::PrefillStats& prefill) {
  if (!usage_.cached_tokens) return;
  *usage_.cached_tokens += prefill.num_cached_tokens;
  usage_.created_cache_tokens += prefill.num_cache_creation_tokens;
}

void Generation::OnChoiceOutput(Choice* choice, const wire::EngineCoreOutput& output,
                                double timestamp) {
  for (const wire::EngineCoreEvent& event : output.events) {
    choice->stats->OnEvent(ToRequestEvent(event.type), event.timestamp);
  }
  const auto num_new = static_cast<int64_t>(output.new_token_ids.size());
  if (context_->options.request_log.outputs) {
    choice->logged_ids.insert(choice->logged_ids.end(), output.new_token_ids.begin(),
                              output.new_token_ids.end());
  }
  std::optional<PromptCounts> prompt;
  if (output.prefill_stats) {
    prompt = CountsOf(*output.prefill_stats);
    if (choice->counts_prompt && !choice->prefilled) CountCached(*output.prefill_stats);
  }
  if (num_new > 0 || prompt) {
    choice->stats->OnTokens(num_new, timestamp, context_->clock->Monotonic(), prompt);
  }
  if (!choice->started) {
    choice->started = true;
    if (ticket_) {
      if (num_new > 0) ticket_->OnFirstToken(context_->clock->Monotonic() - arrival_monotonic_);
      ticket_->Release(choice->num_prompt_tokens);
    }
  }
  if (output.spec_decode_metrics && choices_.size() == 1) {
    auto drafts = wire::UnpackSpecDecodeMetrics(*output.spec_decode_metrics);
    if (drafts.ok()) usage_.drafts = *std::move(drafts);
  }
  const int64_t num_before = choice->processor.num_output_tokens();
  const int64_t num_reasoning_before = choice->processor.num_reasoning_tokens();
  MessageDelta& delta = choice->processor.Process(output);
  usage_.completion_tokens += choice->processor.num_output_tokens() - num_before;
  if (usage_.reasoning_tokens) {
    *usage_.reasoning_tokens += choice->processor.num_reasoning_tokens() - num_reasoning_before;
  }
  if (parser_invocations_ != nullptr) CountParsed(*choice, delta);
  if (delta.finish_reason) Finish(choice);
  if (delta.finish_reason == FinishReason::kError) {
    error_ = InternalError("the engine ended the request with an error");
    AbortRunning(OkStatus());
    End();
    return;
  }
  if (delta.ready) writer_->WriteDelta(choice->index, delta, usage_);
  if (num_unfinished_ == 0) {
    if (context_->options.enable_per_request_metrics && choices_.size() == 1) {
      usage_.timings = TimingsOf(*choice->stats, usage_.completion_tokens);
    }
    writer_->WriteEnd(usage_);
  }
  if (delta.ready && on_progress_) on_progress_();
  if (num_unfinished_ == 0) End();
}

void Generation::CountParsed(const Choice& choice, const MessageDelta& delta) {
  if (counts_deltas_ ? !delta.ready : !delta.finish_reason) return;
  const bool called =
      counts_deltas_ ? !delta.tool_calls.empty() : choice.processor.num_tool_calls() > 0;
  (*parser_invocations_)[called ? ParserOutcome::kToolCall : ParserOutcome::kNoToolCall]
      .Increment();
}

void Generation::Finish(Choice* choice) {
  choice->running = false;
  --num_unfinished_;
  if (choice->processor.must_abort()) context_->engine_client->Abort(choice->id);
  const FinishReason reason = *choice->processor.delta().finish_reason;
  const double now = context_->clock->Monotonic();
  choice->stats->OnFinished(MetricReason(reason), now);
  static const std::string kEngineError = "the engine ended the request with an error";
  EndTrace(*choice, now, FinishReasonName(reason),
           reason == FinishReason::kError ? &kEngineError : nullptr);
  LogFinished(*choice, now);
  if (context_->options.request_log.outputs) {
    LogOutput(context_->options.request_log, choice->id, FinishReasonName(reason),
              choice->logged_ids, context_->input_processor->tokenizer());
  }
}

void Generation::LogFinished(const Choice& choice, double now) const {
  const RequestStats& stats = *choice.stats;
  LogEvent event(log_level_, __FILE__, __LINE__, "request finished");
  event.Add("id", choice.id)
      .Add("reason", FinishReasonName(*choice.processor.delta().finish_reason))
      .Add("prompt_tokens", choice.num_prompt_tokens)
      .Add("cached_tokens", stats.num_cached_tokens())
      .Add("output_tokens", choice.processor.num_output_tokens())
      .AddMs("queue_ms", stats.queue_s())
      .AddMs("prefill_ms", stats.prefill_s())
      .AddMs("decode_ms", stats.decode_s())
      .AddMs("ttft_ms", stats.time_to_first_token_s())
      .AddMs("e2e_ms", now - arrival_monotonic_)
      .Add("preemptions", stats.num_preemptions());
  if (trace_) event.Add("trace_id", HexText(trace_->trace_id()));
}

void Generation::EndTrace(const Choice& choice, double now, std::string_view finish_reason,
                          const std::string* error) {
  if (!trace_) return;
  const RequestStats& stats = *choice.stats;
  trace_->OnChoiceEnd({.id = choice.external_id,
                       .index = choice.index,
                       .end = now,
                       .finish_reason = finish_reason,
                       .error = error == nullptr ? "" : *error,
                       .is_aborted = error == nullptr && finish_reason == "abort",
                       .num_prompt_tokens = choice.num_prompt_tokens,
                       .num_cached_tokens = stats.num_cached_tokens(),
                       .num_output_tokens = choice.processor.num_output_tokens(),
                       .num_preemptions = stats.num_preemptions(),
                       .time_to_first_token_s = stats.time_to_first_token_s(),
                       .queue_s = stats.queue_s(),
                       .prefill_s = stats.prefill_s(),
                       .decode_s = stats.decode_s(),
                       .inference_s = stats.inference_s()});
}

void Generation::OnChoiceError(Choice* choice, const Status& status) {
  choice->running = false;
  choice->OnFailure(status);
  EndTrace(*choice, context_->clock->Monotonic(), "error", &status.message());
  LOG_EVENT(LogLevel::kWarning, "request failed")
      .Add("id", choice->id)
      .Add("error", status.ToString());
  // A lost engine ends the other choices too; a choice that failed alone does not.
  AbortRunning(status.code() == StatusCode::kUnavailable ? status : OkStatus());
  error_ = status;
  End();
}

}  // namespace tandem
