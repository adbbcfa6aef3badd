#pragma once

// One API request while the engine works on it: its n × prompts engine requests, their metrics,
// their end. What the endpoints of generation share.
// Thread: the shard's; the engine client calls back there, once per output, no coroutine per token.
// Owns its choices (the sinks of the engine client); everything in ApiContext outlives it.
// Ends in one of four ways, after which nothing more is called: every choice finished; an engine
// error (the others are aborted); Abort (the client is gone); destruction, which aborts.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "frontend/api/admission_gate.h"
#include "frontend/engine_client/engine_client.h"
#include "frontend/http/router.h"
#include "frontend/metrics/metrics.h"
#include "frontend/metrics/request_stats.h"
#include "frontend/net/net.h"
#include "frontend/openai/generation_request.h"
#include "frontend/openai/responses.h"
#include "frontend/processing/input_processor.h"
#include "frontend/processing/logprobs.h"
#include "frontend/processing/output_processor.h"

namespace tandem {

// What the operator chose for the API.
struct ApiOptions {
  std::vector<std::string> served_model_names;  // not empty; the first is the default
  bool skip_model_name_validation = false;
  bool enable_prompt_tokens_details = false;
  bool enable_force_include_usage = false;
  bool enable_per_request_metrics = false;
  bool return_tokens_as_token_ids = false;
  int64_t stream_interval = 1;
  std::string system_fingerprint;  // empty: null
  JsonLimits json_limits;
};

// What the handlers of all shards share. Built by main, borrowed.
struct ApiParts {
  const InputProcessor* input_processor = nullptr;
  TextPool* text_pool = nullptr;
  AdmissionGate* admission_gate = nullptr;
  Metrics* metrics = nullptr;
  const Clock* clock = nullptr;
};

// What the handlers of one shard work with. Built by main, borrowed.
struct ApiContext : ApiParts {
  explicit ApiContext(const ApiParts& parts = {}) : ApiParts(parts) {}
  ApiContext(const ApiContext&) = delete;

  EngineClient* engine_client = nullptr;  // this shard's
  ApiOptions options;
  std::vector<StepTokens> step_tokens;  // this shard's, one per engine
};

// The model's served name that a request means. NOT_FOUND lists the valid ones.
StatusOr<std::string> ServedModel(const ApiOptions& options,
                                  const std::optional<std::string>& model);

// How every kind of answer shows a choice.
struct ChoiceShape {
  LogprobsStyle logprobs_style;
  bool return_token_ids = false;
};
ChoiceShape MakeChoiceShape(const GenerationRequest& request, const ApiOptions& options);
OutputOptions MakeOutputOptions(const GenerationRequest& request, const ApiOptions& options);

// A choice's prompt, as answers may show it. Borrowed from the generation.
struct ChoicePrompt {
  const std::vector<TokenId>* token_ids = nullptr;
  const std::string* text = nullptr;
};

// One per choice. REQUIRES: the request's prompts stay where they are.
std::vector<ChoicePrompt> PromptsOf(const ProcessedRequest& request);

// Turns what the choices produce into the answer.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  // usage: of the whole request, so far.
  virtual void OnDelta(int choice, const OutputDelta& delta, const Usage& usage) = 0;
  // After the last choice's last delta.
  virtual void OnEnd(const Usage& usage) = 0;
};

class Generation {
 public:
  // on_progress runs after each output that the listener was shown (send what it wrote).
  Generation(ApiContext* context, ProcessedRequest request, const OutputOptions& options,
             double arrival_monotonic, std::unique_ptr<AdmissionGate::Ticket> ticket);
  ~Generation();
  Generation(const Generation&) = delete;

  // For answers; valid as long as this.
  std::vector<ChoicePrompt> prompts() const { return PromptsOf(request_); }

  // Sends everything to the engine. On a refusal nothing is left running.
  Status Start(GenerationListener* listener, std::function<void()> on_progress);
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
  GenerationListener* listener_ = nullptr;
  std::function<void()> on_progress_;
  size_t num_unfinished_ = 0;
  Usage usage_;
  bool aborted_ = false;
  Status error_;
  Event done_;
};

}  // namespace tandem
