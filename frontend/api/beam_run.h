#pragma once

// A request with use_beam_search while the engine works on it: one search for each prompt, and in
// each step one engine request of one token for each live beam. The prefix cache makes them cheap.
// Thread: the shard's. Owns its searches; everything in ApiContext outlives it.
// The engine's requests are counted and logged (at DEBUG) each by itself, as vLLM's are.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontend/api/admission_gate.h"
#include "frontend/api/context.h"
#include "frontend/api/generation.h"
#include "frontend/api/generation_call.h"
#include "frontend/net/net.h"
#include "frontend/processing/beam_search.h"
#include "frontend/processing/output_processor.h"

namespace tandem {

class BeamRun {
 public:
  // REQUIRES: request.beams.
  BeamRun(ApiContext* context, ProcessedRequest request, const OutputOptions& options,
          double arrival_monotonic, std::unique_ptr<AdmissionGate::Ticket> ticket);
  BeamRun(const BeamRun&) = delete;

  // Of each choice. After Search.
  std::vector<ChoicePrompt> prompts() const;

  // Before Search. Past it (monotonic seconds) the search fails with DEADLINE_EXCEEDED: what it has
  // by then is no response.
  void SetDeadline(double deadline) { deadline_ = deadline; }
  // The choices are counted as texts in which calls were looked for.
  void CountToolCalls(ParserInvocations* invocations) { parser_invocations_ = invocations; }
  // Before Search. The search has one span, without the phases of its steps; it ends in EndTrace.
  // id: the response's.
  void SetTrace(std::unique_ptr<RequestTrace> trace, std::string id);
  void EndTrace(const Status& outcome);
  // Runs all steps. The engine's error ends them; so does Abort, after which nothing is written.
  Awaitable<Status> Search();
  void Abort();
  bool aborted() const { return aborted_; }

  // The best beams of each prompt as choices, each with one delta. After Search.
  void Write(ResponseWriter* writer) const;

 private:
  ProcessedRequest MakeStep();
  std::vector<PositionLogprobs> LogprobsOf(const Beam& beam) const;

  ApiContext* const context_;
  const ProcessedRequest request_;
  const OutputOptions options_;
  double arrival_monotonic_;  // of the step
  std::unique_ptr<AdmissionGate::Ticket> ticket_;
  std::unique_ptr<RequestTrace> trace_;
  std::string trace_request_id_;
  std::optional<double> deadline_;
  std::vector<BeamSearch> searches_;  // of each prompt
  int64_t num_steps_ = 0;
  ParserInvocations* parser_invocations_ = nullptr;  // null: not counted
  Usage usage_;
  Generation* step_ = nullptr;  // that runs
  bool aborted_ = false;
};

}  // namespace tandem
