#pragma once

// The frontends: checks that each of them receives what its requests should yield, and nothing
// else. Records the state of each stream. Thread: any one. Failure: INTERNAL that names the request
// and what was received.

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

  // Messages come from this engine from now on. connector: nullptr if it has none.
  void ListenTo(const Scheduler* scheduler, const SimConnector* connector);
  // Returns the id of a new call, which must get one reply.
  uint64_t BeginCall();
  Status Receive(const ClientMessage& message);
  // Every request has ended and every call has got its reply.
  Status CheckEnd() const;

 private:
  Status ReceiveReply(const wire::UtilityOutput& answer);
  Status CheckOutput(const wire::EngineCoreOutput& output);
  Status CheckTokens(const wire::EngineCoreOutput& output, Stream* stream) const;
  Status CheckFinish(const wire::EngineCoreOutput& output, const Stream& stream) const;
  Status CheckError(const wire::EngineCoreOutput& output, const Stream& stream) const;
  Status CheckFinishedId(const RequestId& id);
  Status CheckStats(const wire::SchedulerStats& stats);
  Status CheckDrafts(const wire::SpecDecodingStats& stats);

  Scenario* scenario_;
  Coverage* coverage_;
  const Scheduler* scheduler_ = nullptr;
  const SimConnector* connector_ = nullptr;
  double last_timestamp_ = 0;
  uint64_t next_call_id_ = 1;
  std::map<uint64_t, bool> calls_;  // id → answered
};

}  // namespace tandem
