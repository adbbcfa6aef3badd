#pragma once

// Folds a step's result back into its requests: appends tokens, checks stops, writes the clients'
// records, ends requests. Requests that ended while the step was in flight are left alone; for
// those preempted meanwhile the tokens are delivered or dropped (RequestTable::Preempt).
// Thread: engine loop. Steady decode allocates nothing.

#include <span>
#include <vector>

#include "engine_core/scheduler/client_outputs.h"
#include "engine_core/scheduler/model_output.h"
#include "engine_core/scheduler/scheduler_parts.h"
#include "engine_core/scheduler/step.h"

namespace tandem {

class StepUpdate {
 public:
  // The parts must outlive it.
  explicit StepUpdate(SchedulerParts* parts) : parts_(*parts) {}

  void Apply(const Step& step, ModelOutput* result, ClientOutputs* outputs);
  // Outputs that a connector held back and does no longer; all: every one.
  void SendHeld(bool all, ClientOutputs* outputs);
  // Ends a request with an error record.
  void EndWithError(Request* request, const Status& status, ClientOutputs* outputs,
                    int32_t num_nans_in_logits = 0);

 private:
  // The part of a step's result that is about one request.
  struct OwnResult {
    TokenId sampled = kNoToken;
    RequestResult* extra = nullptr;
    const DraftResult* drafted = nullptr;
    std::span<const TokenId> forced = {};  // after the sampled token (TokenMask)
  };

  void NoteFailedLoads(const Step& step, const KvTransferReport& report);
  void EndFailedLoads(ClientOutputs* outputs);
  void UpdateRequest(const ScheduledRequest& scheduled, const ModelOutput& result,
                     const OwnResult& own, Request* request, ClientOutputs* outputs);
  void AppendTokens(Request* request, std::span<const TokenId> accepted, const OwnResult& own,
                    ClientOutputs* outputs);
  void EndPooled(Request* request, RequestResult* result, ClientOutputs* outputs);
  // Ends a request with its last record.
  void End(Request* request, wire::RequestStatus status, ClientOutputs* outputs,
           wire::EngineCoreOutput* record);
  void RegisterComputed(int32_t num_dropped, Request* request);
  void Fail(Request* request, const RequestResult& result, ClientOutputs* outputs);
  wire::PrefillStats PrefillStatsOf(const Request& request) const;

  SchedulerParts& parts_;
  std::vector<Request*> failed_;  // by the loads of the step that is applied
};

}  // namespace tandem
