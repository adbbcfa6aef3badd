#pragma once

// What must hold for an engine after each of its steps, and when it has no work left. One per
// engine. Thread: any one. Failure: INTERNAL that names the violation.

#include <cstdint>
#include <map>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/engine_core.h"
#include "tests/simulation/coverage.h"
#include "tests/simulation/kv_event_shadow.h"
#include "tests/simulation/sim_connector.h"
#include "tests/simulation/sim_executor.h"

namespace tandem {

class Invariants {
 public:
  // All must outlive it. connector: options.kv_connector with its own type; nullptr: none.
  Invariants(const EngineCoreOptions* options, EngineCore* engine, SimExecutor* executor,
             SimConnector* connector, Coverage* coverage);

  // Before and after a step.
  void BeginStep();
  Status CheckStep();
  // Nothing is left over.
  Status CheckEnd();

 private:
  int64_t NumDone() const;
  Status CheckProgress();
  Status CheckTransfers() const;
  Status CheckAdapters();
  Status CheckEncoderCache() const;
  Status CheckBlocks();
  Status CheckFreeOrder();
  Status CheckKvEvents();
  Status CheckQueues() const;

  const EngineCoreOptions* options_;
  EngineCore* engine_;
  SimExecutor* executor_;
  SimConnector* connector_;
  Coverage* coverage_;
  KvEventShadow kv_events_;
  int64_t num_steps_ = 0;
  // At the beginning of the step.
  bool is_runnable_ = false;
  int64_t num_done_before_ = 0;
  int32_t num_idle_steps_ = 0;            // in a row
  std::map<BlockId, int64_t> last_held_;  // block → step; absent: never
};

}  // namespace tandem
