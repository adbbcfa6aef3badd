#pragma once

// One request's contribution to the metrics, from arrival to its end.
// Thread: the request's shard. The owner passes it the request's outputs.
//
// Two clocks that are never mixed: `now` and `arrival` are the frontend's CLOCK_MONOTONIC, engine
// times are the engine's. TTFT and e2e are frontend intervals; every other interval lies between
// two engine stamps:
//   queue      QUEUED → first SCHEDULED      prefill    first SCHEDULED → first token
//   decode     first token → last token      inference  first SCHEDULED → last token
// A preemption before the first token therefore lands in prefill and TTFT, one after it in decode,
// inference and the inter-token latency; never in the queue. An interval with an end that was never
// stamped (the request was not scheduled) is not observed.
// Where one engine computes the prompt and another one goes on, queue is the first one's, after the
// time for which the frontend kept the prompt back, by its own clock. What lies between the two
// engines (the hand-over, the second one's queue) is part of prefill, likewise moved into the time
// of the first. Each counts the prompt tokens that it computed, found or was handed.
// When an engine dies and another goes on with the request, the frontend's clock measures the gap,
// and the stamps of the new engine are moved into the time of the first: the pause lands in the
// inter-token latency, decode and inference.

#include <algorithm>
#include <optional>

#include "frontend/metrics/metrics.h"

namespace tandem {

enum class RequestEvent { kQueued, kScheduled, kPreempted };

// Prompt tokens by where their KV came from; they add up to the prompt.
struct PromptCounts {
  int64_t computed = 0;
  int64_t local_cached = 0;
  int64_t external_cached = 0;
};

// Tokens of the engine step whose outputs are arriving, over all its requests (of one shard and
// engine).
class StepTokens {
 public:
  explicit StepTokens(EngineMetrics* metrics) : metrics_(metrics) {}
  // Outputs of one step carry the same engine time; the step ends when another begins or at End.
  void Add(double engine_time, int64_t num_tokens);
  void End();

 private:
  EngineMetrics* metrics_;
  double engine_time_ = 0;
  int64_t num_tokens_ = 0;
  bool open_ = false;
};

// The n choices of one prompt, for the two series that count once per prompt. A choice that the
// client aborted keeps them from being counted.
class FanOutStats {
 public:
  FanOutStats(EngineMetrics* metrics, int n) : metrics_(metrics), n_(n), num_left_(n) {}
  void OnChoiceFinished(int64_t num_generation_tokens);

 private:
  EngineMetrics* metrics_;
  int n_;
  int num_left_;
  int64_t max_generation_tokens_ = 0;
};

class RequestStats {
 public:
  struct Request {
    double arrival = 0;  // HttpRequest::arrival_monotonic
    int64_t num_prompt_tokens = 0;
    int64_t max_tokens = 0;  // resolved
    TraceId trace_id = {};   // not set: not traced
    double submitted = 0;    // frontend's clock
  };
  // The n choices of a prompt share `fan_out`, which must outlive this.
  RequestStats(EngineMetrics* metrics, StepTokens* step, FanOutStats* fan_out, Request request)
      : metrics_(metrics),
        step_(step),
        fan_out_(fan_out),
        request_(request),
        unfinished_(&metrics->load) {}

  // One output of the engine, in this order: its events, its tokens, its end.
  void OnEvent(RequestEvent event, double engine_time);
  // `prompt` on the first output, when the engine reports it.
  void OnTokens(int64_t num_new_tokens, double engine_time, double now,
                const std::optional<PromptCounts>& prompt = std::nullopt);
  // The engine has only computed the prompt. prompt: by one choice of a prompt.
  void OnPrefilled(double engine_time, double now, const std::optional<PromptCounts>& prompt);
  void OnFinished(FinishedReason reason, double now);
  // It had waited in the frontend, and an engine has it now.
  void OnWaited(double now) { waited_s_ = std::max(0.0, now - request_.submitted); }
  // Another engine goes on with the request and counts what happens from now on.
  void OnEngineChange(EngineMetrics* metrics, StepTokens* step);
  // It had NaN or infinite logits, now or in an earlier output.
  void OnCorrupted();
  // The engine failed on it: counted as an error, no latency and no length.
  void OnEngineError();
  // The client went away: counted as an abort, no latency and no length.
  void OnClientAbort();

  // For the request's log line; empty when an end was never stamped.
  std::optional<double> queue_s() const {
    const std::optional<double> in_engine = Interval(queued_, scheduled_);
    return in_engine ? std::optional(waited_s_ + *in_engine) : std::nullopt;
  }
  std::optional<double> prefill_s() const { return Interval(scheduled_, first_token_); }
  std::optional<double> decode_s() const { return Interval(first_token_, last_token_); }
  std::optional<double> inference_s() const { return Interval(scheduled_, last_token_); }
  std::optional<double> time_to_first_token_s() const { return time_to_first_token_; }
  int num_preemptions() const { return num_preemptions_; }
  int64_t num_cached_tokens() const { return num_cached_tokens_; }

 private:
  using Stamp = std::optional<double>;
  static std::optional<double> Interval(Stamp begin, Stamp end) {
    if (!begin || !end) return std::nullopt;
    return std::max(0.0, *end - *begin);
  }
  int64_t CountPrompt(double engine_time, const PromptCounts& counts);
  void OnFirstOutput(double engine_time, double now, const std::optional<PromptCounts>& prompt);
  // In the time of the engine that sent the first token.
  double InFirstEngineTime(double engine_time) const { return engine_time + engine_time_shift_; }

  EngineMetrics* metrics_;
  StepTokens* step_;
  FanOutStats* fan_out_;
  const Request request_;
  UnfinishedRequest unfinished_;
  // First engine's clock; last_token_ is the end of the prefill until there is a token.
  Stamp queued_, scheduled_, first_token_, last_token_;
  double last_token_seen_ = 0;  // frontend's clock
  bool is_prefilled_ = false;
  bool is_engine_new_ = false;  // its first token has not arrived
  double engine_time_shift_ = 0;
  double waited_s_ = 0;  // in the frontend
  std::optional<double> time_to_first_token_;
  int num_preemptions_ = 0;
  int64_t num_generation_tokens_ = 0;
  int64_t num_cached_tokens_ = 0;
  bool ended_ = false;
  bool corrupted_ = false;
};

}  // namespace tandem
