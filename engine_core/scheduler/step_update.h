#pragma once

// Folds a step's result back into its requests: appends tokens, checks stops, writes the records
// that the clients get, ends requests. Requests that ended while the step was in flight are left
// alone; those preempted meanwhile hear of their tokens, or not at all (RequestTable::Preempt).
// Thread: engine loop. Owns nothing. Steady decode allocates nothing.

#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/client_outputs.h"
#include "engine_core/scheduler/model_output.h"
#include "engine_core/scheduler/request_table.h"
#include "engine_core/scheduler/step.h"

namespace tandem {

class StepUpdate {
 public:
  // Both must outlive it.
  StepUpdate(int32_t max_model_len, RequestTable* requests, KvCacheManager* kv_cache)
      : max_model_len_(max_model_len), requests_(requests), kv_cache_(kv_cache) {}

  void Apply(const Step& step, ModelOutput* result, ClientOutputs* outputs);

 private:
  void AppendToken(Request* request, TokenId token, RequestResult* extra, ClientOutputs* outputs);
  void Fail(Request* request, RequestResult* extra, ClientOutputs* outputs);
  wire::PrefillStats PrefillStatsOf(const Request& request) const;

  int32_t max_model_len_;
  RequestTable* requests_;
  KvCacheManager* kv_cache_;
};

}  // namespace tandem
