#include "frontend/api/beam_run.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tandem {
namespace {

// Keeps the logprobs of each request's one token.
class StepLogprobs final : public ResponseWriter {
 public:
  explicit StepLogprobs(size_t num_requests) : ResponseWriter(nullptr), positions_(num_requests) {}

  void WriteDelta(int choice, MessageDelta& delta, const Usage&) override {
    if (delta.logprobs.empty()) return;
    positions_[static_cast<size_t>(choice)] = std::move(delta.logprobs.front());
    ++num_known_;
  }
  void WriteEnd(const Usage&) override {}

  bool complete() const { return num_known_ == positions_.size(); }
  // The next `count` of them.
  std::vector<PositionLogprobs> Take(size_t count) {
    const auto begin = positions_.begin() + static_cast<ptrdiff_t>(num_taken_);
    num_taken_ += count;
    return {std::make_move_iterator(begin),
            std::make_move_iterator(begin + static_cast<ptrdiff_t>(count))};
  }

 private:
  std::vector<PositionLogprobs> positions_;
  size_t num_known_ = 0;
  size_t num_taken_ = 0;
};

}  // namespace

BeamRun::BeamRun(ApiContext* context, ProcessedRequest request, const OutputOptions& options,
                 double arrival_monotonic, std::unique_ptr<AdmissionGate::Ticket> ticket)
    : context_(context),
      request_(std::move(request)),
      options_(options),
      arrival_monotonic_(arrival_monotonic),
      ticket_(std::move(ticket)) {
  for (const wire::EngineCoreRequest& prompt : request_.requests) {
    searches_.emplace_back(*request_.beams, prompt.sampling_params.max_tokens);
  }
}

std::vector<ChoicePrompt> BeamRun::prompts() const {
  std::vector<ChoicePrompt> prompts;
  for (size_t i = 0; i < searches_.size(); ++i) {
    const ChoicePrompt prompt = {&request_.prompt_token_ids[i], &request_.prompt_texts[i]};
    prompts.insert(prompts.end(), searches_[i].Best().size(), prompt);
  }
  return prompts;
}

// The requests of all live beams of searches that are not done, in this order.
ProcessedRequest BeamRun::MakeStep() {
  ProcessedRequest step;
  for (size_t i = 0; i < searches_.size(); ++i) {
    if (searches_[i].is_done()) continue;
    for (const Beam& beam : searches_[i].live()) {
      wire::EngineCoreRequest& request = step.requests.emplace_back(request_.requests[i]);
      request.request_id +=
          "-" + std::to_string(num_steps_) + "." + std::to_string(step.requests.size());
      request.prompt_token_ids.insert(request.prompt_token_ids.end(), beam.token_ids.begin(),
                                      beam.token_ids.end());
      request.sampling_params.max_tokens = 1;
      step.num_prompt_tokens += static_cast<int64_t>(request.prompt_token_ids.size());
    }
  }
  step.prompt_texts.resize(step.requests.size());
  step.prompt_token_ids.resize(step.requests.size());
  ++num_steps_;
  return step;
}

Awaitable<Status> BeamRun::Search() {
  OutputOptions options;
  options.logprobs_style = options_.logprobs_style;
  while (!aborted_) {
    ProcessedRequest requests = MakeStep();
    if (requests.requests.empty()) break;
    StepLogprobs logprobs(requests.requests.size());
    Generation step(context_, std::move(requests), options, arrival_monotonic_, std::move(ticket_));
    step.LogQuietly();
    if (deadline_) step.SetDeadline(*deadline_);
    const Status started = step.Start(&logprobs, {});
    if (!started.ok()) co_return started;
    step_ = &step;
    co_await step.WaitForEnd();
    step_ = nullptr;
    if (aborted_ || !step.error().ok()) co_return step.error();
    if (!logprobs.complete() && deadline_ && context_->clock->Monotonic() >= *deadline_) {
      co_return Status(StatusCode::kDeadlineExceeded,
                       "the request's time was over before its search had ended");
    }
    if (!logprobs.complete()) {
      co_return UnavailableError("the engine ended the request before its end");
    }
    if (num_steps_ == 1) usage_ = step.usage();
    for (BeamSearch& search : searches_) {
      if (!search.is_done()) search.Advance(logprobs.Take(search.live().size()));
    }
    arrival_monotonic_ = context_->clock->Monotonic();
  }
  for (const BeamSearch& search : searches_) {
    if (!aborted_ && search.Best().empty()) {
      co_return InvalidArgumentError("none of allowed_token_ids can follow the prompt")
          .WithParam("allowed_token_ids");
    }
  }
  co_return OkStatus();
}

void BeamRun::SetTrace(std::unique_ptr<RequestTrace> trace, std::string id) {
  trace_ = std::move(trace);
  trace_request_id_ = std::move(id);
  TraceRequest(request_, trace_.get());
}

void BeamRun::EndTrace(const Status& outcome) {
  if (!trace_) return;
  int64_t num_output_tokens = 0;
  for (const BeamSearch& search : searches_) {
    for (const Beam& beam : search.Best()) num_output_tokens += std::ssize(beam.token_ids);
  }
  trace_->OnChoiceEnd({.id = trace_request_id_,
                       .end = context_->clock->Monotonic(),
                       .finish_reason = aborted_       ? "abort"
                                        : outcome.ok() ? "stop"
                                                       : "error",
                       .error = outcome.ok() || aborted_ ? "" : outcome.message(),
                       .is_aborted = aborted_,
                       .num_prompt_tokens = request_.num_prompt_tokens,
                       .num_output_tokens = num_output_tokens});
}

void BeamRun::Abort() {
  aborted_ = true;
  if (step_ != nullptr) step_->Abort();
}

// As a sampled token's: itself first, then the most likely ones.
std::vector<PositionLogprobs> BeamRun::LogprobsOf(const Beam& beam) const {
  std::vector<PositionLogprobs> positions;
  for (size_t i = 0; i < beam.logprobs.size(); ++i) {
    const std::vector<ScoredToken>& all = beam.logprobs[i]->top;
    const TokenId id = beam.token_ids[i];
    const auto own = std::find_if(all.begin(), all.end(),
                                  [=](const ScoredToken& token) { return token.token_id == id; });
    PositionLogprobs& position = positions.emplace_back();
    position.token = *own;
    position.top.push_back(*own);
    const int64_t num_top = *request_.beams->num_logprobs;
    const auto end =
        num_top < 0 ? all.end() : all.begin() + std::min<ptrdiff_t>(num_top, std::ssize(all));
    std::copy_if(all.begin(), end, std::back_inserter(position.top),
                 [=](const ScoredToken& token) { return token.token_id != id; });
  }
  return positions;
}

void BeamRun::Write(ResponseWriter* writer) const {
  Usage usage = usage_;  // of the first step: what was cached
  usage.prompt_tokens = request_.num_prompt_tokens;
  usage.completion_tokens = 0;
  if (options_.message && options_.message->has_reasoning()) usage.reasoning_tokens = 0;
  int num_written = 0;
  for (size_t i = 0; i < searches_.size(); ++i) {
    for (const Beam& beam : searches_[i].Best()) {
      wire::EngineCoreOutput output;
      output.new_token_ids = beam.token_ids;
      output.finish_reason =
          beam.has_ended ? wire::FinishReason::kStop : wire::FinishReason::kLength;
      if (beam.has_ended) output.stop_reason = int64_t{beam.token_ids.back()};
      OutputProcessor processor(context_->input_processor->tokenizer(), options_,
                                request_.requests[i].prompt_token_ids);
      MessageDelta& delta = processor.Process(output, LogprobsOf(beam));
      if (parser_invocations_ != nullptr) {
        const bool called = processor.num_tool_calls() > 0;
        (*parser_invocations_)[called ? ParserOutcome::kToolCall : ParserOutcome::kNoToolCall]
            .Increment();
      }
      usage.completion_tokens += processor.num_output_tokens();
      if (usage.reasoning_tokens) *usage.reasoning_tokens += processor.num_reasoning_tokens();
      writer->WriteDelta(num_written++, delta, usage);
    }
  }
  writer->WriteEnd(usage);
}

}  // namespace tandem
