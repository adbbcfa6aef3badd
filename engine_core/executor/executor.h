#pragma once

// Runs scheduled steps. Two implementations: ModelRunner (a model over a Backend) and the
// simulator of tests/simulation. Thread: engine loop; Submit may block until the step is done,
// Collect does. Owns: KV cache memory, weights, the persistent batch (one row per RequestSlot).
// Failure: a non-OK Status means the executor is lost and the engine dies. What concerns one
// request (NaN logits, a grammar that refuses) is RequestResult::status and ends only that request.
//
// Submit is called for every step that has something to run, and without requests when
// `freed_slots` is left to apply or a KV connector wants to hear from its worker
// (polls_kv_transfers). The step is taken in completely; nothing of it is looked at afterwards.
// Steps run one after the other in the order of Submit, each as if those before it were done: a
// request's next input is the token that the step before has sampled. After a failure of its own a
// request may be scheduled once more; what that yields does not matter. An executor with a drafter
// verifies the drafts of a step (scheduler_output.h) and proposes those of the next (DraftResult).

#include <cstdint>

#include "common/status.h"
#include "engine_core/scheduler/model_output.h"
#include "engine_core/scheduler/scheduler_config.h"
#include "engine_core/scheduler/scheduler_output.h"

namespace tandem {

// Fixed once the executor is built; scheduler and KV cache take their sizes from here.
struct ExecutorLimits {
  int32_t num_blocks = 0;  // with the null block 0
  int32_t block_size = 0;  // tokens
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;
  // Keys that a token sees in every layer, its own included; a step names the null block where none
  // of its tokens sees a block. 0: some layer sees all.
  int32_t sliding_window = 0;
  // What its drafter needs; none by default.
  DraftConfig drafts = {};
};

// Submitted and not collected.
constexpr size_t kMaxStepsInFlight = 2;

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorLimits& limits() const = 0;
  // REQUIRES: fewer than kMaxStepsInFlight steps are in flight.
  virtual Status Submit(const SchedulerOutput& step) = 0;
  // The result of the oldest step in flight.
  virtual Status Collect(ModelOutput* result) = 0;
  // Both, where nothing else is in flight.
  Status Execute(const SchedulerOutput& step, ModelOutput* result) {
    RETURN_IF_ERROR(Submit(step));
    return Collect(result);
  }
};

}  // namespace tandem
