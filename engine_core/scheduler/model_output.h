#pragma once

// What a step yielded: made by an Executor, folded back by Scheduler::Update. Parallel to the
// SchedulerOutput it belongs to. A value; thread: engine loop. Reused from step to step.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/scheduler/kv_connector.h"
#include "proto_msgpack/schema.h"

namespace tandem {

constexpr TokenId kNoToken = -1;

// What a request yields beyond its token. Only requests that have any of it get one.
struct RequestResult {
  int32_t request_idx = 0;  // into SchedulerOutput::requests
  Status status;            // not OK: the request ends with this error; its token is ignored
  int32_t num_nans_in_logits = 0;
  std::optional<wire::LogprobsRows> logprobs;  // of the sampled token: one row
  // Of the whole prompt, gathered over its chunks and given with the step that first samples; never
  // again after a preemption that came later.
  std::optional<wire::LogprobsRows> prompt_logprobs;
};

struct ModelOutput {
  std::vector<TokenId> sampled_token_ids;  // one per request; kNoToken where !needs_sample
  std::vector<RequestResult> results;      // ascending request_idx; empty in most steps
  KvTransferNews kv_transfers;             // of the worker's side of a KV connector

  void Clear() {
    sampled_token_ids.clear();
    results.clear();
    kv_transfers.Clear();
  }
};

}  // namespace tandem
