#pragma once

// Runs scheduled steps. Two implementations: ModelRunner (a model over a Backend) and the
// simulator of tests/simulation. Thread: engine loop; Submit may block until the step is done,
// Collect does. Owns: KV cache memory, weights, the persistent batch (one row per RequestSlot).
// Failure: a non-OK Status means that the executor is lost and the engine dies. The failure of one
// request (NaN logits, no token left) is its RequestResult::status and ends only that request.
//
// Submit is called for every step that has something to run; without requests when only
// `freed_slots` are to be applied or a KV connector polls its worker (polls_kv_transfers). It takes
// the step in completely and does not read it afterwards. Steps run one after another in the order
// of Submit, each as if those before it were done: a request's next input is the token that the
// step before sampled. A request that has failed may be scheduled once more; that result is
// dropped. An executor with a drafter verifies the drafts of a step (scheduler_output.h) and
// proposes those of the next (DraftResult).

#include <cstdint>
#include <optional>

#include "common/status.h"
#include "engine_core/executor/image_limits.h"
#include "engine_core/kv_cache/layer_groups.h"
#include "engine_core/scheduler/model_output.h"
#include "engine_core/scheduler/scheduler_config.h"
#include "engine_core/scheduler/scheduler_output.h"
#include "pooling/pooler_config.h"

namespace tandem {

// Fixed once the executor is built; scheduler and KV cache take their sizes from here.
struct ExecutorLimits {
  int32_t num_blocks = 0;  // including the null block 0
  int32_t block_size = 0;  // tokens
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;
  // A step names the null block in place of a local one that none of its tokens sees.
  LayerGroups groups = {};
  int32_t hidden_size = 0;  // columns of prompt embeddings; 0: they are not accepted
  // What images must be; nullopt: the model takes none.
  std::optional<ImageLimits> images = {};
  // What the drafter needs; by default there is none.
  DraftConfig drafts = {};
  // The model pools its requests; nullopt: it generates.
  std::optional<PoolerConfig> pooling = {};
  // Steps that were submitted and not collected: at most this many.
  size_t max_steps_in_flight = 2;
};

constexpr size_t kMaxStepsInFlight = 8;  // of any executor

// What of an executor's memory can be given back while an engine sleeps.
struct MemoryParts {
  bool weights = false;
  bool kv_cache = false;

  bool any() const { return weights || kv_cache; }
  friend bool operator==(const MemoryParts&, const MemoryParts&) = default;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorLimits& limits() const = 0;
  // REQUIRES: fewer than limits().max_steps_in_flight steps are in flight.
  virtual Status Submit(const SchedulerOutput& step) = 0;
  // The result of the oldest step in flight.
  virtual Status Collect(ModelOutput* result) = 0;
  // Both, when nothing else is in flight.
  Status Execute(const SchedulerOutput& step, ModelOutput* result) {
    RETURN_IF_ERROR(Submit(step));
    return Collect(result);
  }

  // ---- while an engine sleeps: no step is in flight, no request has blocks ----
  // Gives the memory of these parts back. rereads: Restore reads the weights of the model's folder
  // as it is then; else they are those that were loaded.
  virtual Status Release(const MemoryParts& /*parts*/, bool /*rereads*/) {
    return UnimplementedError("this engine keeps its weights and its KV cache");
  }
  // Takes it again, before the next step that has requests; the KV cache is empty. Failure: the
  // weights stay released, and it may be called again.
  virtual Status Restore(const MemoryParts& /*parts*/) { return OkStatus(); }
};

}  // namespace tandem
