#pragma once

// Decides what runs in each step. There are no phases: a request has num_tokens and
// num_computed_tokens, and each step spends a token budget letting the second catch up with the
// first, running requests before waiting ones. Chunked prefill, prefix cache hits, decode and
// preemption are all this one rule. The idea and the order of every decision are vLLM's V1
// scheduler, whose own traces are replayed by tests/golden.
//
// Thread: engine loop. Pure: time comes in as `now` (monotonic seconds), nothing else is read.
// Owns: the requests from Add until they finish. A finished request is gone; its id can be used
// again. The order of calls is Schedule, execute, Update, with anything else in between.
// Steady decode: neither Schedule nor Update allocates.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/client_outputs.h"
#include "engine_core/scheduler/model_output.h"
#include "engine_core/scheduler/prefill_cadence.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/request_queue.h"
#include "engine_core/scheduler/scheduler_output.h"
#include "proto_msgpack/schema.h"

namespace tandem {

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
};

enum class PauseState {
  kUnpaused,
  kPausedNew,  // running requests go on, nothing is admitted
  kPausedAll,  // nothing is scheduled, requests are kept
};

// Who finished, when several did at once.
struct FinishedRequest {
  RequestId id;
  int32_t client_index = 0;
};

class Scheduler {
 public:
  // The manager has as many slots as config.max_num_seqs and must outlive the scheduler.
  Scheduler(const SchedulerConfig& config, KvCacheManager* kv_cache);

  // AlreadyExists for an id that is still in use. REQUIRES: at least one prompt token, fewer than
  // max_model_len, ids in range.
  Status Add(wire::EngineCoreRequest request, double now);
  // Ends a request in any state, without an output record; its id goes to its client's finished
  // requests. False: unknown or already finished, nothing done.
  bool Abort(const RequestId& id);
  // The same for all, or all of one client, in the order of adding.
  std::vector<FinishedRequest> AbortAll();
  std::vector<FinishedRequest> AbortClient(int32_t client_index);

  // The step to run next, perhaps empty; valid until the next call.
  const SchedulerOutput& Schedule(double now);
  // Folds a step's result back: appends tokens, ends requests, writes records for the clients.
  void Update(const SchedulerOutput& step, ModelOutput* result, ClientOutputs* outputs);
  // Counts since the last call, and the state now.
  wire::SchedulerStats TakeStats();

  // False when blocks are still held. With preempt_running, running requests give theirs up first
  // and resume in their order.
  bool ResetPrefixCache(bool preempt_running, double now);
  void SetPauseState(PauseState state) { pause_state_ = state; }
  PauseState pause_state() const { return pause_state_; }

  // Whether Schedule could find something to run.
  bool HasRunnable() const;
  // Whether a step without tokens still has something to tell a client or the executor.
  bool HasNews() const { return !finished_.empty() || !freed_slots_.empty(); }
  size_t num_requests() const { return requests_.size(); }
  size_t num_running() const { return running_.size(); }
  size_t num_waiting() const { return waiting_->size(); }
  const std::vector<Request*>& running() const { return running_; }
  std::vector<Request*> Waiting() const { return waiting_->InOrder(); }
  const Request* Find(const RequestId& id) const;
  // Requests, queues and blocks as text, for gdb and logs.
  std::string DebugString() const;

 private:
  struct ScheduledEntry {
    Request* request = nullptr;
    int32_t num_tokens = 0;
    int32_t num_blocks_before = 0;  // of its table, known to the worker
    ScheduledKind kind = ScheduledKind::kRunning;
  };
  // What is left to give in the step being made.
  struct StepPlan {
    double now = 0;
    int32_t budget_tokens = 0;
    int32_t chunk_limit = 0;  // most tokens of one request
    bool hold_prefills = false;
    bool has_prefill = false;
    bool preempted = false;
  };

  StepPlan StartStep(double now) const;
  void ScheduleRunning(StepPlan* plan);
  bool MakeRoom(size_t* running_idx, int32_t num_tokens, StepPlan* plan);
  size_t PickVictim() const;
  void TakeBack(Request* request, StepPlan* plan);
  void Preempt(size_t running_idx, double now);
  void ScheduleWaiting(StepPlan* plan);
  bool TryAdmit(Request* request, StepPlan* plan);
  void Admit(Request* request, RequestSlot slot, int32_t num_hit_tokens, double now);
  void CountLookup(const Request& request, int32_t num_hit_tokens);
  void BuildOutput();

  void AppendToken(Request* request, TokenId token, RequestResult* extra, ClientOutputs* outputs);
  void Fail(Request* request, RequestResult* extra, ClientOutputs* outputs);
  wire::PrefillStats PrefillStatsOf(const Request& request) const;
  void Release(Request* request);
  void Finish(Request* request, wire::RequestStatus status);
  void RemoveFinished();
  template <class Predicate>
  std::vector<FinishedRequest> AbortIf(Predicate predicate);

  SchedulerConfig config_;
  KvCacheManager* kv_cache_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<Request*> running_;  // in the order of admission
  std::unique_ptr<RequestQueue> waiting_;
  std::vector<Request*> by_slot_;          // nullptr: free
  std::vector<RequestSlot> free_slots_;    // taken from the back
  std::vector<RequestSlot> freed_slots_;   // since the last step
  std::vector<FinishedRequest> finished_;  // since the last Update
  std::vector<ScheduledEntry> scheduled_;  // the step being made
  SchedulerOutput output_;
  PrefillCadence cadence_;
  PauseState pause_state_ = PauseState::kUnpaused;
  wire::PrefixCacheStats prefix_cache_stats_;
  int64_t num_steps_ = 0;  // that ran tokens
  int64_t num_added_ = 0;
};

}  // namespace tandem
