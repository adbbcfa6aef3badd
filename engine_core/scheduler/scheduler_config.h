#pragma once

// The scheduler's configuration. Values; counts are tokens or requests. Most are set by flags of
// the same names (engine_core/config.cc), some by the executor's limits.

#include <cstdint>
#include <vector>

#include "engine_core/scheduler/prefill_pace.h"
#include "engine_core/scheduler/request_queue.h"

namespace tandem {

// What becomes of a request whose KV could not be loaded.
enum class KvLoadFailurePolicy { kFail, kRecompute };

// What the last output of a request reports about its drafts.
enum class DraftReport { kNone, kSummary, kEveryStep };

// What the executor's drafter needs of the scheduler.
struct DraftConfig {
  int32_t num_speculative_tokens = 0;  // drafts of a request that a step verifies; 0: no drafter
  // KV positions after those of a step that the drafter writes to.
  int32_t num_lookahead_tokens = 0;
  // Tokens of max_num_batched_tokens that the drafter takes for each request of a step.
  int32_t num_input_slots = 0;
  // Pads a request that is admitted with one token to compute to the tokens of a decode with
  // drafts, so that a step of decodes is uniform. Not together with `by_batch`.
  bool pads_new_requests = false;
  // Fewer drafts in larger batches: from this number of requests in a step on, so many for each.
  // Ascending; before the first one, num_speculative_tokens.
  struct FromBatch {
    int32_t num_requests = 0;
    int32_t num_drafts = 0;
  };
  std::vector<FromBatch> by_batch = {};
  DraftReport report = DraftReport::kNone;
};

struct SchedulerConfig {
  int32_t max_num_batched_tokens = 2048;
  int32_t max_num_scheduled_tokens = 0;  // 0: max_num_batched_tokens
  int32_t max_num_seqs = 256;            // slots
  int32_t max_num_active_seqs = 0;       // 0: max_num_seqs
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  // kShortestPrompt: how much later than the longest prompt one may arrive and still pass it.
  double longest_prompt_wait_s = 30;
  bool enable_chunked_prefill = true;
  int32_t long_prefill_token_threshold = 0;  // 0: none
  bool long_prefill_token_threshold_adaptive = false;
  bool reserve_full_isl = true;  // admit only what fits as a whole
  int32_t prefill_schedule_interval = 1;
  StepTimeLimit step_time_limit = {};   // of steps in which requests decode; needs chunked prefill
  StepTimeLimit image_time_limit = {};  // of steps that compute slices of images
  // Steps that the stages of a pipeline have under way at once. Above 1, running requests are
  // spread over them, and a request waits for the token that it has in flight.
  int32_t num_pipeline_steps = 1;
  int32_t max_loras = 0;  // adapters of running requests
  // Rows of images that are kept, and that a step computes (encoder_cache.h); 0: no request has
  // any.
  int32_t encoder_cache_rows = 0;
  bool needs_whole_images = false;  // no chunk may end inside one
  DraftConfig drafts;
  // Further steps may be scheduled before a step is updated.
  bool overlaps_steps = false;
  KvLoadFailurePolicy kv_load_failure_policy = KvLoadFailurePolicy::kFail;
  // With kRecompute: a request of which so many loads have brought nothing is computed.
  int32_t max_failed_kv_loads = 2;

  double seconds_per_prompt_token() const {
    return policy == SchedulingPolicy::kShortestPrompt ? longest_prompt_wait_s / max_model_len : 0;
  }
};

}  // namespace tandem
