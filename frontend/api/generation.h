#pragma once

// One API request while the engine works on it: its n × prompts engine requests, their metrics,
// their end.
// Thread: the shard's; the engine client calls back there, once per output, no coroutine per token.
// Owns its choices (the sinks of the engine client); everything in ApiContext outlives it.
// Ends in one of four ways, after which nothing more is called: every choice finished; an engine
// error (the others are aborted); Abort (the client is gone); destruction, which aborts.

#include <functional>
#include <memory>
#include <vector>

#include "frontend/api/admission_gate.h"
#include "frontend/api/context.h"
#include "frontend/api/generation_call.h"
#include "frontend/metrics/request_stats.h"
#include "frontend/net/net.h"
#include "frontend/processing/output_processor.h"

namespace tandem {

// One per choice. REQUIRES: the request's prompts stay where they are.
std::vector<ChoicePrompt> PromptsOf(const ProcessedRequest& request);

class Generation {
 public:
  Generation(ApiContext* context, ProcessedRequest request, const OutputOptions& options,
             double arrival_monotonic, std::unique_ptr<AdmissionGate::Ticket> ticket);
  ~Generation();
  Generation(const Generation&) = delete;

  // Valid as long as this.
  std::vector<ChoicePrompt> prompts() const { return PromptsOf(request_); }

  // Sends everything to the engine. on_progress (may be empty) runs after each output that the
  // writer was given. On a refusal nothing is left running.
  Status Start(ResponseWriter* writer, std::function<void()> on_progress);
  // The client is gone: nothing more is shown, the engine is told to stop.
  void Abort();

  // Set at the end, whichever it is.
  Event& done() { return done_; }
  bool aborted() const { return aborted_; }
  const Status& error() const { return error_; }  // of the engine; OK when all finished

 private:
  class Choice;

  // The request is with an engine now: its metrics are that engine's.
  void BeginStats(Choice* choice, int engine);
  void OnChoiceOutput(Choice* choice, const wire::EngineCoreOutput& output, double timestamp);
  void OnChoiceError(Choice* choice, const Status& status);
  void Finish(Choice* choice);
  // why: what took all choices, which fail of it; OK when nothing did and they are just given up.
  void AbortRunning(const Status& why);

  ApiContext* const context_;
  ProcessedRequest request_;  // the engine requests have moved on after Start
  const double arrival_monotonic_;
  std::unique_ptr<AdmissionGate::Ticket> ticket_;
  std::vector<std::unique_ptr<FanOutStats>> fan_out_;  // one per prompt
  std::vector<std::unique_ptr<Choice>> choices_;
  ResponseWriter* writer_ = nullptr;
  std::function<void()> on_progress_;
  size_t num_unfinished_ = 0;
  Usage usage_;
  bool aborted_ = false;
  Status error_;
  Event done_;
};

}  // namespace tandem
