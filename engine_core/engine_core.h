#pragma once

// The engine: events (engine_event.h) become requests of the scheduler, calls and aborts; each step
// schedules, executes, folds the result back and makes the messages of every client.
// EngineCore is the pure part: no thread, no socket; time comes from the Clock. RunEngineLoop puts
// it between a Mailbox and a wire endpoint.
// Thread: engine loop. Owns: scheduler and KV cache; not the executor, not the clock.
// Failure: a bad request gets an error record, a bad call a failure reply. Only a lost executor
// ends the engine: Step returns the reason.
// A second ADD with the id of a live request: another client gets an error record. The same client
// gets none, because on its socket the id means the first request, whose stream would end with the
// error.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mailbox.h"
#include "common/packed_bytes.h"
#include "common/status.h"
#include "engine_core/adapters/adapter_cache.h"
#include "engine_core/engine_event.h"
#include "engine_core/executor/executor.h"
#include "engine_core/grammar/request_grammars.h"
#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/client_outputs.h"
#include "engine_core/scheduler/scheduler.h"
#include "engine_core/startup_log.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct EngineCoreOptions {
  // max_num_seqs, max_num_batched_tokens, max_model_len, vocab_size and drafts are the executor's.
  SchedulerConfig scheduler;
  // Likewise num_blocks, block_size, max_num_seqs and max_model_len.
  KvCacheConfig kv_cache;
  // Schedules a step before the result of the previous one is known, so that the executor does not
  // wait for the engine.
  bool async_scheduling = false;
  int32_t engine_index = 0;
  size_t max_num_requests = 1 << 16;  // running and waiting; one more is refused, retryable
  // Of the images of all requests; more are refused, retryable, unless no other request has any.
  int64_t max_image_bytes = int64_t{4} << 30;
  double shutdown_timeout_s = 0;        // how long running requests may go on; 0: abort at once
  KvConnector* kv_connector = nullptr;  // must outlive the engine; nullptr: none
  RequestGrammars* grammars = nullptr;  // likewise; nullptr: structured outputs are refused
  // Where adapters come from; must outlive the engine. nullptr: requests with an adapter are
  // refused.
  AdapterLoads* adapter_loads = nullptr;
  int32_t max_cpu_loras = 1;       // adapters that are kept
  bool enable_sleep_mode = false;  // the executor can release its memory
  // What an accepted request needs besides blocks and the grammar of its structured outputs; empty:
  // nothing. Nothing sets it yet.
  std::function<RequestNeeds(const wire::EngineCoreRequest&)> needs_of = {};
  // Names and values in turn, for vllm:cache_config_info (cache_facts.h).
  std::vector<std::string> cache_facts = {};
  std::vector<StartupPhase> startup = {};  // for tandem:engine_startup_seconds
};

enum class PauseMode {
  kAbort,  // requests are aborted, with outputs
  kWait,   // running requests finish; new ones are refused, retryable
  kKeep,   // nothing runs, requests are kept
};

class EngineCore {
 public:
  // FAILED_PRECONDITION: the executor's limits do not fit together, e.g. a KV cache too small for
  // one request of max_model_len.
  static StatusOr<std::unique_ptr<EngineCore>> Create(const EngineCoreOptions& options,
                                                      Executor* executor, const Clock* clock);

  // Takes in one event. Its effects show in the next Step.
  void Handle(EngineEvent event);
  // The part of it that concerns the result which EndStep is about to fold back: an ABORT, a lost
  // client. Handle gets the event as well, in its turn.
  void HandleAborts(const EngineEvent& event);
  // Whether Step would change anything or make a message. When false, only an event changes that.
  bool HasWork() const;
  // One step. Not OK: the executor is lost and the engine cannot go on. The two halves are for a
  // caller that handles aborts in between, so that they take effect before the step's result.
  Status Step();
  // Schedules a step, submits it and waits for the oldest result. With async_scheduling the
  // submitted step may still run when this returns. may_schedule: otherwise it only waits for the
  // oldest result, if there is one.
  Status BeginStep(bool may_schedule = true);
  bool has_steps_in_flight() const { return !in_flight_.empty(); }
  // Folds that result back and makes the messages.
  void EndStep();
  // The messages that Step and Handle have made since the last call, in order.
  void TakeMessages(std::vector<ClientMessage>* messages);
  // Takes back a message that has been sent, for its memory; see ClientOutputs.
  void Recycle(wire::EngineCoreOutputs spent) { outputs_.Recycle(std::move(spent)); }

  // Changes of the prefix cache since the last call; none without enable_events.
  std::vector<KvCacheEvent> TakeKvEvents();

  // After a ShutdownRequest or LeaveRequest new requests are aborted and calls fail.
  bool shutting_down() const { return shutdown_deadline_.has_value(); }
  // Shutting down, no request is left, and every message has been taken.
  bool done() const { return shutting_down() && !HasWork(); }

  // For utility calls, between steps.
  bool ResetPrefixCache(bool preempt_running, bool reset_connector = false);
  void ResetEncoderCache() { scheduler_.ResetEncoderCache(); }
  // Replies to `call` when the pause has taken effect: kWait waits for running requests.
  void Pause(PauseMode mode, bool clear_cache, const wire::UtilityRequest& call);
  // FAILED_PRECONDITION: the engine has released memory, and WakeUp is what it needs.
  Status Resume();
  bool is_paused() const { return scheduler_.pause_state() != PauseState::kUnpaused; }
  // Level 0 is a pause. Above it weights and KV cache are released then: with 1 the engine wakes
  // with the weights that it has, with 2 with those that the model's folder has by then.
  void Sleep(int64_t level, PauseMode mode, const wire::UtilityRequest& call);
  // Restores these parts, and ends the pause once nothing is released. True: it is awake. Failure:
  // it sleeps on.
  StatusOr<bool> WakeUp(const MemoryParts& parts);
  // Releases the KV cache alone. FAILED_PRECONDITION: no pause has taken effect.
  Status ReleaseKvCache();
  // Of the sleep that it is in; none without memory released.
  std::optional<int64_t> sleep_level() const {
    return released_.any() ? std::optional(sleep_level_) : std::nullopt;
  }
  bool can_release_memory() const { return options_.enable_sleep_mode; }
  bool is_sleeping() const { return is_paused() || released_.any(); }
  AdapterCache& adapters() { return adapters_; }
  const std::vector<std::string>& cache_facts() const { return options_.cache_facts; }
  const std::vector<StartupPhase>& startup() const { return options_.startup; }
  const std::optional<std::string>& weight_version() const { return weight_version_; }
  void set_weight_version(std::string version) { weight_version_ = std::move(version); }

  // A checkpoint: all that later steps depend on, but the content of KV blocks. False while a step
  // is in flight or messages wait, and with a connector.
  bool CanSave() const;
  void Save(ByteWriter* out) const;  // REQUIRES: CanSave
  // Into a new engine of the same options and limits. DATA_LOSS: not what Save has written.
  Status Load(ByteReader* in);

  const Scheduler& scheduler() const { return scheduler_; }
  const KvCacheManager& kv_cache() const { return kv_cache_; }
  // Requests, queues and blocks as text: (gdb) print engine->DebugString()
  std::string DebugString() const { return scheduler_.DebugString(); }

 private:
  // A pause that waits for running requests, and the call to reply to.
  struct PendingPause {
    int32_t client_index = 0;
    uint64_t call_id = 0;
    bool clear_cache = false;
    int64_t sleep_level = 0;  // what follows
  };

  // Scheduled; its result has not been folded back.
  struct StepInFlight {
    const SchedulerOutput* output = nullptr;
    bool submitted = false;  // the executor has it
    double submitted_at = 0;
  };

  EngineCore(const EngineCoreOptions& options, Executor* executor, const Clock* clock);
  bool NeedsStep() const;
  StatusOr<bool> SubmitStep();
  void ObserveTime(const StepInFlight& step);
  void On(wire::EngineInput input);
  void On(wire::EngineCoreRequest request);
  using Images = StatusOr<std::shared_ptr<const RequestImages>>;
  void OnOne(wire::EngineCoreRequest request, const Images& images);
  void On(const wire::AbortRequest& request_ids);
  void On(const wire::UtilityRequest& call);
  void On(const wire::StartDpWave&) {}  // engines without lockstep have no waves
  void On(const wire::ClientLost& lost);
  void On(const GrammarResult& result) { scheduler_.EndGrammarWait(result, &outputs_); }
  void On(const GrammarCompiled& compiled);
  void On(const AdapterLoaded& loaded);
  void On(const ShutdownRequest&);
  void On(const LeaveRequest&);
  void On(const LogStateRequest&);
  Status TryAdd(wire::EngineCoreRequest request, const Images& images);
  StatusOr<AdapterCache::Place> FindAdapter(const wire::EngineCoreRequest& request);
  Status CheckGrammar(const wire::EngineCoreRequest& request) const;
  Status CheckImageBytes(const RequestImages& images) const;
  void EndMasks();
  void AbortAllWithOutputs(const wire::StopReason& why = {});
  void AddAbortRecord(int32_t client_index, const RequestId& request_id,
                      const wire::StopReason& why);
  void Reply(int32_t client_index, uint64_t call_id, StatusOr<wire::RawValue> result);
  void BeginPause(PauseMode mode, bool clear_cache, int64_t sleep_level,
                  const wire::UtilityRequest& call);
  void FinishPause();
  Status ReleaseMemory(const MemoryParts& parts, int64_t level);
  void EnforceShutdown();

  EngineCoreOptions options_;
  Executor* executor_;
  const Clock* clock_;
  KvCacheManager kv_cache_;
  Scheduler scheduler_;
  AdapterCache adapters_;
  std::vector<StepInFlight> in_flight_;         // oldest first
  const SchedulerOutput* collected_ = nullptr;  // the step of result_
  double collected_at_ = 0;                     // when the result before the next one came
  ModelOutput result_;
  ClientOutputs outputs_;
  bool stats_due_ = false;               // a number changed that no step will report
  std::vector<ClientMessage> messages_;  // ready to go
  std::optional<PendingPause> pending_pause_;
  bool refuses_new_ = false;  // paused with PauseMode::kWait
  MemoryParts released_;
  int64_t sleep_level_ = 0;  // while something is released
  std::optional<double> shutdown_deadline_;
  std::optional<std::string> weight_version_;
};

class FlightRecorder;
class LoopPulse;

// What the loop is connected to. Functions are called on the loop's thread.
struct EngineLoopWire {
  Mailbox<EngineEvent>* events = nullptr;
  std::function<void(int32_t client_index, wire::EngineCoreOutputs message)> send;
  // A message that has been sent, or an empty one.
  std::function<wire::EngineCoreOutputs()> take_spent;
  // A step's changes of the prefix cache; empty: they are not published.
  std::function<void(std::vector<KvCacheEvent> events)> publish = {};
  LoopPulse* pulse = nullptr;  // where it gives signs of life; nullptr: nowhere
  // Gets what the loop does, while the engine's clock, executor and grammars are those that it
  // records; nullptr: nothing is recorded.
  FlightRecorder* recorder = nullptr;
};

// Runs one step after another and handles the events that arrive in between. An ABORT or a lost
// client that arrives while a step executes takes effect before the step's result, so that no
// record of the request follows. Returns OK when a shutdown is complete, or the executor's Status
// when it is lost, after sending the messages made so far. Sleeps while there is nothing to do.
Status RunEngineLoop(EngineCore* engine, const EngineLoopWire& wire);

}  // namespace tandem
