#include "frontend/metrics/request_stats.h"

#include <utility>

namespace tandem {

void StepTokens::Add(double engine_time, int64_t num_tokens) {
  if (open_ && engine_time != engine_time_) End();
  open_ = true;
  engine_time_ = engine_time;
  num_tokens_ += num_tokens;
}

void StepTokens::End() {
  if (!open_) return;
  metrics_->iteration_tokens.Observe(static_cast<double>(num_tokens_));
  open_ = false;
  num_tokens_ = 0;
}

void FanOutStats::OnChoiceFinished(int64_t num_generation_tokens) {
  max_generation_tokens_ = std::max(max_generation_tokens_, num_generation_tokens);
  if (--num_left_ != 0) return;
  metrics_->request_params_n.Observe(n_);
  metrics_->request_max_num_generation_tokens.Observe(static_cast<double>(max_generation_tokens_));
}

void RequestStats::OnEvent(RequestEvent event, double engine_time) {
  switch (event) {
    case RequestEvent::kQueued:
      if (!first_token_ && !is_prefilled_) queued_ = engine_time;
      break;
    case RequestEvent::kScheduled:
      if (!scheduled_) scheduled_ = engine_time;  // a resumed request does not queue again
      break;
    case RequestEvent::kPreempted:
      ++num_preemptions_;
      metrics_->num_preemptions.Increment();
      break;
  }
}

int64_t RequestStats::CountPrompt(double engine_time, const PromptCounts& counts) {
  const int64_t num_cached = std::max<int64_t>(0, counts.local_cached + counts.external_cached);
  auto& by_source = metrics_->prompt_tokens_by_source;
  metrics_->prompt_tokens.Increment(static_cast<double>(counts.computed + num_cached));
  by_source[PromptSource::kLocalCompute].Increment(static_cast<double>(counts.computed));
  by_source[PromptSource::kLocalCacheHit].Increment(static_cast<double>(counts.local_cached));
  by_source[PromptSource::kExternalKvTransfer].Increment(
      static_cast<double>(counts.external_cached));
  metrics_->prompt_tokens_cached.Increment(static_cast<double>(num_cached));
  step_->Add(engine_time, counts.computed);
  return num_cached;
}

void RequestStats::OnFirstOutput(double engine_time, double now,
                                 const std::optional<PromptCounts>& prompt) {
  first_token_ = InFirstEngineTime(engine_time);
  time_to_first_token_ = std::max(0.0, now - request_.arrival);
  metrics_->time_to_first_token.Observe(*time_to_first_token_, request_.trace_id);

  num_cached_tokens_ =
      CountPrompt(engine_time, prompt.value_or(PromptCounts{request_.num_prompt_tokens, 0, 0}));
}

void RequestStats::OnPrefilled(double engine_time, double now,
                               const std::optional<PromptCounts>& prompt) {
  is_prefilled_ = true;
  last_token_ = engine_time;
  last_token_seen_ = now;
  if (prompt) CountPrompt(engine_time, *prompt);
}

void RequestStats::OnTokens(int64_t num_new_tokens, double engine_time, double now,
                            const std::optional<PromptCounts>& prompt) {
  // An engine that ends a request before running it sends an output without tokens.
  if (num_new_tokens == 0 && !scheduled_) return;
  if (std::exchange(is_engine_new_, false) && last_token_) {
    engine_time_shift_ = *last_token_ + (now - last_token_seen_) - engine_time;
  }
  step_->Add(engine_time, num_new_tokens);
  const double step_time = std::exchange(engine_time, InFirstEngineTime(engine_time));
  if (!first_token_) {
    OnFirstOutput(step_time, now, prompt);
  } else if (num_new_tokens > 0) {
    metrics_->inter_token_latency.Observe(std::max(0.0, engine_time - *last_token_));
  }
  last_token_ = engine_time;
  last_token_seen_ = now;
  num_generation_tokens_ += num_new_tokens;
  metrics_->generation_tokens.Increment(static_cast<double>(num_new_tokens));
}

void RequestStats::OnEngineChange(EngineMetrics* metrics, StepTokens* step) {
  unfinished_.MoveTo(&metrics->load);
  metrics_ = metrics;
  step_ = step;
  is_engine_new_ = true;
  if (!first_token_ && !is_prefilled_) {
    // Stamps of the other engine's clock; this one stamps anew.
    queued_.reset();
    scheduled_.reset();
  }
}

void RequestStats::OnFinished(FinishedReason reason, double now) {
  if (std::exchange(ended_, true)) return;
  unfinished_.End();
  EngineMetrics& m = *metrics_;
  const auto observe = [this](Histogram& histogram, std::optional<double> seconds) {
    if (seconds) histogram.Observe(*seconds, request_.trace_id);
  };
  m.request_success[reason].Increment();
  m.e2e_request_latency.Observe(std::max(0.0, now - request_.arrival), request_.trace_id);
  observe(m.request_queue_time, queue_s());
  observe(m.request_prefill_time, prefill_s());
  observe(m.request_decode_time, decode_s());
  observe(m.request_inference_time, inference_s());
  if (decode_s()) {
    const auto gaps = static_cast<double>(num_generation_tokens_ - 1);
    m.request_time_per_output_token.Observe(gaps > 0 ? *decode_s() / gaps : 0);
  }
  m.request_prompt_tokens.Observe(static_cast<double>(request_.num_prompt_tokens));
  m.request_generation_tokens.Observe(static_cast<double>(num_generation_tokens_));
  if (request_.max_tokens > 0) {
    m.request_params_max_tokens.Observe(static_cast<double>(request_.max_tokens));
  }
  m.request_prefill_kv_computed_tokens.Observe(
      static_cast<double>(request_.num_prompt_tokens - num_cached_tokens_));
  m.request_num_preemptions.Observe(num_preemptions_);
  fan_out_->OnChoiceFinished(num_generation_tokens_);
}

void RequestStats::OnCorrupted() {
  if (!std::exchange(corrupted_, true)) metrics_->corrupted_requests.Increment();
}

void RequestStats::OnEngineError() {
  if (std::exchange(ended_, true)) return;
  unfinished_.End();
  metrics_->request_success[FinishedReason::kError].Increment();
}

void RequestStats::OnClientAbort() {
  if (std::exchange(ended_, true)) return;
  unfinished_.End();
  metrics_->request_success[FinishedReason::kAbort].Increment();
}

}  // namespace tandem
