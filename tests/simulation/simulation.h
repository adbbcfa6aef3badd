#pragma once

// One run of the engine against made-up frontends, drawn from a seed: the real scheduler, KV cache
// and step loop, a manual clock and the simulated executor. After each step the invariants are
// checked; at the end every request has ended exactly once with its right answer.
// Thread: any one. The same seed is the same run, bit for bit.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "engine_core/engine_core.h"
#include "tests/simulation/kv_event_shadow.h"
#include "tests/simulation/sim_connector.h"
#include "tests/simulation/sim_executor.h"

namespace tandem {

class Simulation {
 public:
  explicit Simulation(uint64_t seed);

  // What broke, or OK.
  Status Run();
  // The configuration that was drawn, for the report of a failure.
  std::string Describe() const;

  struct Coverage {
    int64_t num_requests = 0;
    int64_t num_steps = 0;
    int64_t num_preemptions = 0;
    int64_t num_hit_tokens = 0;
    int64_t num_aborts = 0;
    int64_t num_request_failures = 0;
    int64_t num_restarts = 0;
    int64_t num_resets = 0;
    int64_t num_pauses = 0;
    int64_t num_kv_loads = 0;
    int64_t num_kv_load_failures = 0;
    int64_t num_kept_tables = 0;
    int64_t num_grammars = 0;
    int64_t num_adapter_steps = 0;  // with as many adapters as fit
    int64_t num_drafts = 0;
    int64_t num_accepted_drafts = 0;
  };
  const Coverage& coverage() const { return coverage_; }

 private:
  // A request as its frontend knows it.
  struct Stream {
    wire::EngineCoreRequest request;
    std::vector<TokenId> answer;  // the whole right answer, whatever happens on the way
    wire::FinishReason reason = wire::FinishReason::kLength;
    wire::StopReason stop_reason;
    std::optional<size_t> fails_after;  // so many outputs, then the executor fails it
    bool refused = false;               // by the checks at ingress
    RequestNeeds needs;
    bool grammar_fails = false;
    std::vector<TokenId> emitted;
    bool sent = false;
    bool may_abort = false;          // a pause ended it with "abort"
    bool sent_while_paused = false;  // and may have been refused for that
    bool has_record = false;         // from the engine that runs it now
    bool ended = false;              // a finish record, or aborted by its client
    int num_finished_ids = 0;
  };

  void DrawConfig();
  void DrawWindow();
  void DrawOutside(uint64_t seed);
  void DrawDrafter(uint64_t seed);
  void DrawStream();
  std::vector<TokenId> DrawPrompt(int32_t max_tokens);
  void SolveStream(Stream* stream) const;
  void StartEngine();

  Status Act();
  void Send(Stream* stream);
  void EndSomeGrammarWaits();
  void AbortSome();
  void AbortWhileExecuting();
  void SendAgain();
  void Call(std::string method, wire::RawValue args);
  Status StepOnce();
  Status Restart();
  Status Hear(const ClientMessage& message);
  Status HearOutput(const wire::EngineCoreOutput& output);
  Status HearTokens(const wire::EngineCoreOutput& output, Stream* stream) const;
  Status HearFinish(const wire::EngineCoreOutput& output, const Stream& stream) const;
  Status HearFinishedId(const RequestId& id);
  Status HearStats(const wire::SchedulerStats& stats);
  Status HearDrafts(const wire::SpecDecodingStats& stats);
  void CountTransfers();
  Status CheckTransfers() const;
  Status CheckAdapters();
  Status CheckBlocks();
  Status CheckFreeOrder();
  Status CheckKvEvents();
  Status CheckQueues() const;
  Status CheckEnd();

  // Another adapter, another model: the same tokens have another answer.
  static uint64_t FirstHash(const Stream& stream);
  bool Chance(double probability);
  int32_t Between(int32_t low, int32_t high);

  std::mt19937_64 random_;
  ExecutorLimits limits_;
  EngineCoreOptions options_;
  ManualClock clock_{100};
  std::unique_ptr<SimExecutor> executor_;
  std::optional<uint64_t> connector_seed_;  // nullopt: no connector
  std::unique_ptr<SimConnector> connector_;
  std::optional<uint64_t> drafter_seed_;  // nullopt: no drafter
  std::unique_ptr<EngineCore> engine_;
  std::unique_ptr<KvEventShadow> kv_events_;
  std::vector<std::vector<TokenId>> documents_;  // prompts share their beginnings
  std::map<RequestId, Stream> streams_;
  std::vector<wire::EngineInput> arrived_;  // while a step executed
  std::vector<GrammarResult> grammars_;     // not told yet
  std::vector<RequestId> order_;            // of arrival; the first next_ have been sent
  size_t next_ = 0;
  double arrival_chance_ = 0;
  double abort_chance_ = 0;
  double call_chance_ = 0;
  bool lossy_ = false;
  bool paused_ = false;
  int64_t steps_left_ = 0;  // bounded progress
  int32_t num_idle_steps_ = 0;
  std::map<BlockId, int64_t> last_held_;  // block → step; absent: never
  double last_timestamp_ = 0;
  uint64_t next_call_id_ = 1;
  std::map<uint64_t, bool> calls_;  // id → answered
  Coverage coverage_;
};

}  // namespace tandem
