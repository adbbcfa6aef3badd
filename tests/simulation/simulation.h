#pragma once

// One run of the engine against simulated frontends, drawn from a seed: the real scheduler, KV
// cache and step loop, a manual clock and the simulated executor. Here is what happens between two
// steps; what must hold is in Frontends (what they receive) and Invariants (the engine's state).
// Thread: any one. The same seed is the same run, bit for bit.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "engine_core/engine_core.h"
#include "tests/simulation/coverage.h"
#include "tests/simulation/frontends.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_connector.h"
#include "tests/simulation/sim_executor.h"
#include "tests/simulation/sim_random.h"

namespace tandem {

class Simulation {
 public:
  explicit Simulation(uint64_t seed);

  // What broke, or OK: every request has ended exactly once with its right answer.
  Status Run();
  // The configuration that was drawn, for the report of a failure.
  std::string Describe() const { return scenario_.Describe(); }
  const Coverage& coverage() const { return coverage_; }

 private:
  Status StepOnce();

  void StartEngine();
  void StartConnector();
  void Restart();
  static void Continue(Stream* stream);
  void CountTransfers();

  void Act();
  void Send(Stream* stream);
  void SendAgain();
  void EndSomeGrammarWaits();
  void AbortSome();
  void AbortWhileExecuting();
  void CallSomething();
  void Pause();
  void Resume();
  void Call(std::string method, wire::RawValue args);
  void LoseClient(int32_t client_index);
  const RequestId& SomeId();

  SimRandom random_;
  Scenario scenario_;
  Coverage coverage_;
  Frontends frontends_{&scenario_, &coverage_};
  ManualClock clock_{100};
  std::unique_ptr<SimExecutor> executor_;
  std::unique_ptr<SimConnector> connector_;
  std::unique_ptr<EngineCore> engine_;
  std::unique_ptr<Invariants> invariants_;
  size_t next_ = 0;                      // of scenario_.order: those before it have been sent
  std::vector<EngineEvent> arrived_;     // while a step executed
  std::vector<GrammarResult> grammars_;  // not ready yet
  bool is_paused_ = false;
  int64_t steps_left_ = 0;  // bounded progress
};

}  // namespace tandem
