#pragma once

// Decides what runs in each step. There are no phases: a request has num_tokens and
// num_computed_tokens, and each step spends a token budget letting the second catch up with the
// first, running requests before waiting ones. README.md in this folder is a sketch of the whole.
// The idea and the order of every decision are vLLM's V1 scheduler, whose own traces are replayed
// by tests/golden/scheduler.
//
// Thread: engine loop. Pure: time comes in as `now` (monotonic seconds), nothing else is read.
// Owns: the requests from Add until they finish. A finished request is deleted; its id can be used
// again. The order of calls is Schedule, execute, Update; other calls may come in between.
// Asynchronous scheduling: further steps may be scheduled before the first is updated; steps are
// executed and updated in the order they were scheduled. A request whose next input token is still
// being sampled is scheduled with a placeholder. The result of a step for a request that has ended
// meanwhile is dropped; for one that was preempted meanwhile it is delivered, and the request
// resumes after that. Steady decode: neither Schedule nor Update allocates.

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/packed_bytes.h"
#include "common/status.h"
#include "engine_core/scheduler/client_outputs.h"
#include "engine_core/scheduler/grammar_result.h"
#include "engine_core/scheduler/kv_connector.h"
#include "engine_core/scheduler/model_output.h"
#include "engine_core/scheduler/prefill_cadence.h"
#include "engine_core/scheduler/prefill_pace.h"
#include "engine_core/scheduler/running_pass.h"
#include "engine_core/scheduler/scheduler_output.h"
#include "engine_core/scheduler/scheduler_parts.h"
#include "engine_core/scheduler/step.h"
#include "engine_core/scheduler/step_plan.h"
#include "engine_core/scheduler/step_update.h"
#include "engine_core/scheduler/waiting_pass.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// Why a scheduler needs another step; a later reason is the stronger one.
enum class Work {
  kNone,       // only an event changes that
  kTransfers,  // blocks of ended requests wait for a KV connector's worker, asked with each step
  kPromises,   // likewise, for what another process reads
  kNotices,    // finished requests to report to clients, freed slots to report to the executor
  kRequests,   // Schedule may find a request to run
};

enum class PauseState {
  kUnpaused,
  kPausedNew,  // running requests go on, nothing is admitted
  kPausedAll,  // nothing is scheduled, requests are kept
};

class Scheduler {
 public:
  // The cache and the connector (nullptr: none) must outlive the scheduler. REQUIRES: the cache has
  // at least config.max_num_seqs slots; a connector only with one full group of layers.
  Scheduler(const SchedulerConfig& config, KvCacheManager* kv_cache,
            KvConnector* connector = nullptr);
  Scheduler(const Scheduler&) = delete;  // its parts point at each other
  Scheduler& operator=(const Scheduler&) = delete;

  // AlreadyExists for an id that is still in use, if only by a transfer of an ended request.
  // InvalidArgument for an image that no step can take.
  // A request that brings outputs of an earlier run goes on as after a preemption.
  // REQUIRES: at least one prompt token, fewer tokens than max_model_len, ids in range; an adapter
  // only with a name and if max_loras > 0.
  Status Add(wire::EngineCoreRequest request, double now, const RequestNeeds& needs = {});
  // A request was refused before Add: its KV elsewhere is given up.
  void OnRefused(const RequestId& id, const wire::RawValue& extra_args) {
    parts_.transfers.OnRefused(id, extra_args);
  }
  // A grammar is ready, or its request ends with the error. Does nothing for a request that has
  // ended meanwhile.
  void EndGrammarWait(const GrammarResult& result, ClientOutputs* outputs);
  // The adapter of a request is loaded, or the request ends with the error. Does nothing for a
  // request that has ended meanwhile.
  void EndAdapterWait(const RequestId& id, int64_t order, const StatusOr<Adapter>& adapter,
                      ClientOutputs* outputs);
  // The grammar of a request is lost: it waits for EndGrammarWait again, and runs on from the
  // tokens that it has. REQUIRES: it is there, and no transfer of a KV connector names it.
  void AwaitGrammar(const RequestId& id, double now);
  // Ends a request in any state, without an output record; its id is among its client's finished
  // requests. Blocks that are kept for readers of one that has ended are given up. False: unknown
  // or already finished.
  bool Abort(const RequestId& id);
  // The same for all, or all of one client, in the order of adding.
  std::vector<FinishedRequest> AbortAll();
  std::vector<FinishedRequest> AbortClient(int32_t client_index);

  // The next step, which may be empty; valid until its Update.
  const SchedulerOutput& Schedule(double now);
  // The same with its requests, for the masks that it gets before it is submitted.
  Step& newest_step() { return *newest_step_; }
  // Folds a step's result back: appends tokens, ends requests, writes records for the clients. A
  // step without work need not be updated.
  void Update(const SchedulerOutput& step, ModelOutput* result, ClientOutputs* outputs);
  // The last outputs that a KV connector still holds back.
  void SendHeldOutputs(ClientOutputs* outputs) { update_.SendHeld(/*all=*/true, outputs); }
  // Whether ObserveStep is to be called; then for each step that ran, before its Update.
  bool wants_step_times() const { return pace_.is_on(); }
  void ObserveStep(const SchedulerOutput& step, double seconds);
  // Counts since the last call, and the current state.
  wire::SchedulerStats TakeStats();

  // False when blocks are still held. With preempt_running, running requests are preempted first
  // and resume in their order; their tokens in flight are dropped and sampled again. With
  // reset_connector, the connector forgets what it could load, and may fail to.
  bool ResetPrefixCache(bool preempt_running, double now, bool reset_connector = false);
  // The rows of all images are computed again when they are needed.
  void ResetEncoderCache() { parts_.encoder_cache.Reset(); }
  void SetPauseState(PauseState state) { pause_state_ = state; }
  PauseState pause_state() const { return pause_state_; }

  // The strongest reason for another step.
  Work pending_work() const;
  size_t num_requests() const { return parts_.requests.size(); }
  size_t num_running() const { return parts_.requests.running().size(); }
  size_t num_waiting() const { return parts_.requests.num_waiting(); }
  const std::vector<Request*>& running() const { return parts_.requests.running(); }
  std::vector<Request*> Waiting() const { return parts_.requests.waiting().InOrder(); }
  std::vector<Request*> Holding() const { return parts_.requests.holding().InOrder(); }
  const KvTransfers& transfers() const { return parts_.transfers; }
  // Of the pixels of all requests, those that several share once; without those of `but`.
  int64_t NumImageBytes(const RequestImages* but) const {
    return parts_.requests.NumImageBytes(but);
  }
  const EncoderCache& encoder_cache() const { return parts_.encoder_cache; }
  const AdapterSlots& adapters() const { return parts_.requests.adapters(); }
  const Request* Find(const RequestId& id) const { return parts_.requests.Find(id); }
  // A checkpoint: requests, queues and blocks, also those of the KV cache, as they are; statistics
  // are left out. REQUIRES: no step is in flight.
  void Save(ByteWriter* out) const;
  // Into a new scheduler and cache of the same configuration. DATA_LOSS: not what Save has written.
  Status Load(ByteReader* in);
  // Requests, queues and blocks as text, for gdb and logs.
  std::string DebugString() const;

 private:
  StepPlan::Limits LimitsOfStep();
  int32_t NumDecodes() const;
  int32_t NumSlicesOfStep();
  bool TryResetLocal(bool preempt_running, double now);
  void AddTransferStats(wire::SchedulerStats* stats);
  template <class Predicate>
  std::vector<FinishedRequest> AbortIf(Predicate predicate);
  // Drops last outputs that are held; their clients learn that the requests have ended.
  template <class Predicate>
  bool DropHeld(Predicate predicate);

  SchedulerParts parts_;
  RunningPass running_pass_;
  WaitingPass waiting_pass_;
  StepUpdate update_;
  StepPlan plan_;
  StepsInFlight steps_;
  Step* newest_step_ = nullptr;
  PrefillCadence cadence_;
  PrefillPace pace_;
  PauseState pause_state_ = PauseState::kUnpaused;
  bool prefix_cache_was_reset_ = false;  // since the last TakeStats
  bool connector_was_reset_ = false;     // likewise
  int64_t num_steps_ = 0;                // that ran tokens
  double now_ = 0;                       // when the last step was scheduled
};

}  // namespace tandem
