#pragma once

// The frontends' ears: whether each of them hears what its requests should yield, and nothing else.
// Keeps in the streams what has become of them. Thread: any one. Failure: INTERNAL that says who
// heard what.

#include <cstdint>
#include <map>

#include "common/status.h"
#include "engine_core/scheduler/client_outputs.h"
#include "engine_core/scheduler/scheduler.h"
#include "proto_msgpack/schema.h"
#include "tests/simulation/coverage.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_connector.h"

namespace tandem {

class Frontends {
 public:
  // Both must outlive it.
  Frontends(Scenario* scenario, Coverage* coverage) : scenario_(scenario), coverage_(coverage) {}

  // From here on it is this engine that speaks. connector: nullptr if it has none.
  void ListenTo(const Scheduler* scheduler, const SimConnector* connector);
  // A call has been sent, which is to be answered once; returns its id.
  uint64_t BeginCall();
  Status Hear(const ClientMessage& message);
  // Every request has ended and every call has been answered.
  Status CheckEnd() const;

 private:
  Status HearAnswer(const wire::UtilityOutput& answer);
  Status HearOutput(const wire::EngineCoreOutput& output);
  Status HearTokens(const wire::EngineCoreOutput& output, Stream* stream) const;
  Status HearFinish(const wire::EngineCoreOutput& output, const Stream& stream) const;
  Status HearError(const wire::EngineCoreOutput& output, const Stream& stream) const;
  Status HearFinishedId(const RequestId& id);
  Status HearStats(const wire::SchedulerStats& stats);
  Status HearDrafts(const wire::SpecDecodingStats& stats);

  Scenario* scenario_;
  Coverage* coverage_;
  const Scheduler* scheduler_ = nullptr;
  const SimConnector* connector_ = nullptr;
  double last_timestamp_ = 0;
  uint64_t next_call_id_ = 1;
  std::map<uint64_t, bool> calls_;  // id → answered
};

}  // namespace tandem
