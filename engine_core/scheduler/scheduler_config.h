#pragma once

// What a scheduler is told once. Values; counts are tokens or requests. Flags of the same names set
// them (engine_core/config.cc).

#include <cstdint>

#include "engine_core/scheduler/request_queue.h"

namespace tandem {

// What becomes of a request whose KV could not be brought from elsewhere.
enum class KvLoadFailurePolicy { kFail, kRecompute };

struct SchedulerConfig {
  int32_t max_num_batched_tokens = 2048;
  int32_t max_num_scheduled_tokens = 0;  // 0: max_num_batched_tokens
  int32_t max_num_seqs = 256;            // slots
  int32_t max_num_active_seqs = 0;       // 0: max_num_seqs
  int32_t max_model_len = 0;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  bool enable_chunked_prefill = true;
  int32_t long_prefill_token_threshold = 0;  // 0: none
  bool long_prefill_token_threshold_adaptive = false;
  bool reserve_full_isl = true;  // admit only what fits as a whole
  int32_t prefill_schedule_interval = 1;
  int32_t max_loras = 0;  // adapters that may be in the batch together
  KvLoadFailurePolicy kv_load_failure_policy = KvLoadFailurePolicy::kFail;
};

}  // namespace tandem
