#pragma once

// One API request while the engine works on it: its n × prompts engine requests, their metrics and
// their end.
// Thread: the shard's. The engine client calls back there, once per output; no coroutine runs per
// token. Owns its choices (the engine client's sinks); everything in ApiContext outlives it.
// Ends in one of four ways, after which it calls nothing more: every choice finished; an engine
// error (the other choices are aborted); Abort (the client is gone); destruction, which aborts.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/log.h"
#include "frontend/api/admission_gate.h"
#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"
#include "frontend/api/live_requests.h"
#include "frontend/metrics/request_stats.h"
#include "frontend/net/net.h"
#include "frontend/processing/output_processor.h"
#include "frontend/tracing/request_trace.h"

namespace tandem {

// One per choice, so several share a prompt. Points into the request, which must not move.
std::vector<ChoicePrompt> PromptsOf(const ProcessedRequest& request);

// What the request asks for, as attributes of its spans.
void TraceRequest(const ProcessedRequest& request, RequestTrace* trace);

class Generation {
 public:
  Generation(ApiContext* context, ProcessedRequest request, const OutputOptions& options,
             double arrival_monotonic, std::unique_ptr<AdmissionGate::Ticket> ticket);
  ~Generation();
  Generation(const Generation&) = delete;

  // Valid as long as this.
  std::vector<ChoicePrompt> prompts() const { return PromptsOf(request_); }

  // Before Start: counts what the parser of tool calls finds, in each choice as a whole or in each
  // of its deltas.
  void CountToolCalls(ParserInvocations* invocations, bool per_delta) {
    parser_invocations_ = invocations;
    counts_deltas_ = per_delta;
  }
  // Before Start. Past it (monotonic seconds) a request without a first token fails with
  // DEADLINE_EXCEEDED; one that has begun ends as at max_tokens, with stop_reason request_timeout.
  void SetDeadline(double deadline) { deadline_ = deadline; }
  // Before Start: its spans; null for none.
  void SetTrace(std::unique_ptr<RequestTrace> trace) { trace_ = std::move(trace); }
  // Before Start: the log's lines of it are only for debugging, because it is one of many.
  void LogQuietly() { log_level_ = LogLevel::kDebug; }
  // Sends everything to the engine. on_progress (may be empty) runs after each output that reached
  // the writer. After an error nothing is left running.
  Status Start(ResponseWriter* writer, std::function<void()> on_progress);
  // The client is gone: writes nothing more and aborts the engine requests.
  void Abort();

  // Waits for the end, which is the deadline's at the latest.
  Awaitable<void> WaitForEnd();
  // Set at the end, in whichever way.
  Event& done() { return done_; }
  bool aborted() const { return aborted_; }
  const Usage& usage() const { return usage_; }   // so far
  const Status& error() const { return error_; }  // the engine's; OK when all choices finished
  LiveRequest Describe(double now) const;         // now: CLOCK_MONOTONIC

 private:
  class Choice;

  void CountParsed(const Choice& choice, const MessageDelta& delta);
  // Counts the choice for the engine that has its request now.
  void BeginStats(Choice* choice, int engine);
  void OnChoicePrefilled(Choice* choice, const wire::EngineCoreOutput& output, double timestamp);
  void CountCached(const wire::PrefillStats& prefill);
  void OnChoiceOutput(Choice* choice, const wire::EngineCoreOutput& output, double timestamp);
  void OnChoiceError(Choice* choice, const Status& status);
  void Finish(Choice* choice);
  void LogFinished(const Choice& choice, double now) const;
  // Its spans. error: why it failed; null: it did not.
  void EndTrace(const Choice& choice, double now, std::string_view finish_reason,
                const std::string* error);
  void End();                         // sets done_
  void Unlist();                      // from the shard's live requests
  Status Expired(ExpiryStage stage);  // counted, for a request that has no first token
  void Expire();
  // why: the failure that ends all choices; OK: they are given up without one.
  void AbortRunning(const Status& why);

  ApiContext* const context_;
  ProcessedRequest request_;  // Start moves the engine requests out
  const double arrival_monotonic_;
  std::unique_ptr<AdmissionGate::Ticket> ticket_;
  std::unique_ptr<RequestTrace> trace_;
  std::vector<std::unique_ptr<FanOutStats>> fan_out_;  // one per prompt
  std::vector<std::unique_ptr<Choice>> choices_;
  ResponseWriter* writer_ = nullptr;
  std::function<void()> on_progress_;
  ParserInvocations* parser_invocations_ = nullptr;  // null: not counted
  bool counts_deltas_ = false;
  LogLevel log_level_ = LogLevel::kInfo;
  size_t num_unfinished_ = 0;
  std::optional<double> deadline_;
  Usage usage_;
  bool aborted_ = false;
  std::optional<LiveRequests::iterator> place_;  // in the shard's list
  Status error_;
  Event done_;
};

}  // namespace tandem
