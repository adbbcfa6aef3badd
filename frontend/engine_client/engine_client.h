#pragma once

// One shard's client of all engines: Submit sends a request to one of them, its outputs arrive at a
// sink. Connects the wire to parts that know no sockets: EngineBalancer (which engine gets a
// request), RunningRequests (what the engines work on), EngineHealth (which of them can serve),
// Prefills (prompts that some engines compute for the others), Resumption (what goes on after an
// engine's death) and UtilityCalls.
// Thread: the shard's own (callbacks too); what the wire thread delivers is posted here, a whole
// engine message at a time.
// Failure: no healthy engine or too many requests is a Status of Submit. When an engine of ours
// dies, its requests go on with the next one that is there, within options.resume; those of another
// program's engine end with OnError(UNAVAILABLE). When an engine takes over from the one that has
// its index, requests move to it at once; what it cannot go on with ends where it runs. An engine
// of ours that has requests and replies to nothing for health.hang_timeout_s counts as dead until
// its next message. The failure of a prefill ends no request.
//
// With prefill engines a prompt of prefill_min_tokens and more that the decoding engine does not
// have goes to one of them first, or waits here until they have room for its KV. All engines are
// whole ones: without one that decodes, prefill engines run whole requests.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/mailbox.h"
#include "common/status.h"
#include "frontend/engine_client/engine_balancer.h"
#include "frontend/engine_client/engine_health.h"
#include "frontend/engine_client/output_sink.h"
#include "frontend/engine_client/prefills.h"
#include "frontend/engine_client/prefix_index.h"
#include "frontend/engine_client/resume_policy.h"
#include "frontend/engine_client/resumption.h"
#include "frontend/engine_client/running_requests.h"
#include "frontend/engine_client/utility_calls.h"
#include "proto_msgpack/lora_request.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {
class FrontendEndpoint;
struct EncodedMessage;
}  // namespace tandem::wire

namespace tandem {

struct EngineClientOptions {
  int client_index = 0;  // this shard's; the engine sends outputs to that client's socket
  int num_clients = 1;
  int num_engines = 1;
  int start_rank = 0;             // of the first engine; requests name ranks
  bool routes_by_prefix = false;  // to the engine that has most of the prompt in its cache
  int num_prefill_engines = 0;    // the first ones; below num_engines
  int64_t prefill_min_tokens = 1;
  size_t max_inflight = 1 << 16;  // requests of this shard; above it Submit is RESOURCE_EXHAUSTED
  EngineHealthLimits health = {};
  ResumeLimits resume = {};
};

class EngineClient {
 public:
  // The shard: how to run functions on its thread, now (from any thread) or at a time.
  struct Thread {
    std::function<void(std::function<void()>)> post;
    std::function<void(double deadline, std::function<void()>)> at;
    const Clock* clock = nullptr;
  };
  using StatsCallback =
      std::function<void(int engine_index, const wire::SchedulerStats& stats, double timestamp)>;

  // Registers with the endpoint. REQUIRES: endpoint not started, closed before this is destroyed.
  EngineClient(EngineClientOptions options, wire::FrontendEndpoint* endpoint, Thread thread);
  ~EngineClient();

  // Sends the request to the least loaded engine (or to request.data_parallel_rank), or its prompt
  // to the least loaded prefill engine, and returns the index of that engine, or of one for which
  // the prompt waits. Sets client_index, and the
  // seed of a request for one of our engines that has none, so that another engine makes the same
  // draws. *sink must live until its last call or Abort. ALREADY_EXISTS: the id is running.
  // UNAVAILABLE: no engine, or one that takes nothing. RESOURCE_EXHAUSTED: too many.
  // INVALID_ARGUMENT: there is no such rank.
  StatusOr<int> Submit(wire::EngineCoreRequest request, OutputSink* sink);
  // The same for the choices of one prompt, which are equal but for their ids and seeds. All go to
  // one engine, one of ours gets the prompt once (proto_msgpack/choices.h), and all are running or
  // none. REQUIRES: ids as ChoiceId makes them if there are several, and a sink for each.
  StatusOr<int> SubmitChoices(std::vector<wire::EngineCoreRequest> choices,
                              const std::vector<OutputSink*>& sinks);

  // Reports to an engine that a request with these extra_args was refused, so that KV that it would
  // have loaded is given up. Nobody gets an output.
  void SendRefused(wire::RawValue extra_args);

  // Ends requests without calling their sinks, and aborts them in the engines (one message for each
  // engine). Ids that are unknown or have ended are ignored.
  void Abort(const RequestId& request_id);
  void Abort(const std::vector<RequestId>& request_ids);
  // The operator's abort: each sink gets a last output with finish_reason abort. For what a name is
  // see RunningRequests. Returns how many ended.
  size_t AbortNamed(const std::vector<std::string>& names);
  // The engines have read the adapter from its folder, perhaps other weights than before. A request
  // with outputs of those before can go on with its engine alone.
  void OnAdapterLoaded(const std::string& name, const std::string& path);
  // Whether an adapter's files are others than those that were loaded, though nobody has asked for
  // a load: what an engine that comes next would read. Before the shard starts.
  void SetAdapterFiles(std::function<bool(const wire::LoraRequest& lora)> has_other_files) {
    has_other_files_ = std::move(has_other_files);
  }
  // The server is not to serve yet: health() and Submit return `why` until it is released. Hold:
  // before the shard starts.
  void Hold(const Status& why) { held_ = why; }
  void Release();
  // The server ends: each sink gets OnError(why), the engines get the aborts, and Submit returns
  // `why` from now on.
  void EndAll(const Status& why);
  // Runs a function on the shard's thread, unless this is gone by then. Any thread.
  void RunOnShard(std::function<void()> function);

  // What an engine reported to another shard's client: each report has one receiver.
  void TakeLoad(int engine_index, const wire::SchedulerStats& stats);
  // Likewise: a prefix that another shard's client sent to an engine.
  void TakePrefix(int engine_index, const std::vector<uint64_t>& hashes);

  // Other shards' clients send to the same engines (probation_turns.h): how this one gets an engine
  // for a request alone, and gives it back. reserve: OnReserved is called later; a release follows
  // each.
  struct Sharing {
    std::function<void(int engine_index)> reserve;
    std::function<void(int engine_index, bool has_ended)> release;
  };
  void ShareEngines(Sharing sharing) { sharing_ = std::move(sharing); }
  void OnReserved();
  // Another client reserves the engine: when this returns, what it had of this one's has been
  // aborted and waits, but for requests that are not kept. ComeBack ends it.
  void LeaveEngine(int engine_index);
  void ComeBack(int engine_index, bool has_ended);

  // Calls a utility method of one engine ("reset_prefix_cache", args a packed msgpack array; empty:
  // none). The callback gets the packed result (empty: nil) or why there is none.
  void CallUtility(int engine_index, std::string_view method, wire::RawValue args,
                   UtilityCalls::Callback callback);

  // OK while requests can be served: every engine has been ready, and one is. Otherwise names one
  // that is not, or why the server is held.
  Status health() const;
  bool healthy() const { return health().ok(); }
  // health(), and an engine replies to a probe within hang_timeout_s. Ours reply whatever their
  // loop does, which they watch themselves; others reply between two steps. Never waits. now: any
  // monotonic clock.
  Status CheckAlive(double now);
  bool engine_ready(int engine_index) const { return health_.ready(engine_index); }
  // OK, or why it is not ready.
  Status engine_status(int engine_index) const { return health_.CheckReady(engine_index); }
  int client_index() const { return options_.client_index; }
  int num_engines() const { return options_.num_engines; }
  int start_rank() const { return options_.start_rank; }
  size_t num_inflight() const { return running_.size(); }
  // Engines and running requests as text, for a debugger.
  std::string DebugString() const;

  // What the engines report at READY; see EngineHealth.
  const wire::EngineCoreReadyResponse* engine_info() const { return health_.engine_info(); }
  const wire::EngineCoreReadyResponse& engine_info(int engine_index) const {
    return health_.engine_info(engine_index);
  }

  // Called once for each engine message that carries stats, after its outputs.
  void OnStats(StatsCallback callback) { on_stats_ = std::move(callback); }
  // Called for each request that an engine's death left without an engine, once for each death.
  void OnResumeOutcome(std::function<void(ResumeOutcome)> callback) {
    on_resume_outcome_ = std::move(callback);
  }
  // Called when one engine took over from another, with the number of requests that moved. There
  // was no moment without an engine.
  void OnTakeOver(std::function<void(int engine_index, int64_t num_moved)> callback) {
    on_take_over_ = std::move(callback);
  }
  // Called when an engine is there, a new one or one that took over, before requests go on with it.
  void OnEngineReady(std::function<void(int engine_index)> callback) {
    on_engine_ready_ = std::move(callback);
  }
  // Called for each prompt that was sent, if routes_by_prefix, with the hashes of its blocks.
  void OnPrefixSent(
      std::function<void(int engine_index, const std::vector<uint64_t>& hashes)> callback) {
    on_prefix_sent_ = std::move(callback);
  }
  // Called whenever health() may have changed.
  void OnHealthChange(std::function<void()> callback) { on_health_change_ = std::move(callback); }

 private:
  struct Event {  // from the wire thread
    enum class Kind { kOutputs, kReady, kLost } kind = Kind::kOutputs;
    wire::EngineCoreOutputs outputs;
    int seat = 0;
    wire::EngineCoreReadyResponse response;
    Status why;
  };
  // Aborts made while one of these lives are sent together when the last one ends, after
  // requests and before prompts that wait for an engine, if one takes them.
  class Batch;

  void Register();
  void DrainEvents();
  void HandleOutputs(const wire::EngineCoreOutputs& outputs);
  void HandleReady(int seat, const wire::EngineCoreReadyResponse& response);
  void HandleTakeOver(int engine_index, int seat, const wire::EngineCoreReadyResponse& response);
  void SendLeave(int engine_index);
  void HandleLost(int seat, const Status& why);
  // The wire's seats and our engine indices, the predecessors' included (running_requests.h).
  int IndexOf(int seat) const;
  int SeatOf(int engine_index) const;
  void WatchEngines();
  void LookAtEngines();
  void HandleHung(int engine_index, const Status& why);
  void SendProbe(int engine_index);
  void SendAborts();
  void SendAborts(int engine_index);
  void ResumeWaiting();
  void WatchDeadline();
  void Send(int engine_index, wire::RequestType type, wire::EncodedMessage message);

  // ---- engine_routing.cc: which engine gets a request ----
  using Choices = std::vector<wire::EngineCoreRequest>;
  using Prefix = std::vector<uint64_t>;  // hashes of a prompt's blocks; empty: not used
  Status CheckAdmits(const Choices& choices) const;
  StatusOr<int> ChooseEngine(std::optional<int> rank, const Prefix& prefix);
  // A prefill engine, one of ours.
  bool TakesPrompts(int engine_index) const;
  std::optional<int> FirstPrefillEngine() const;
  // As Prefills asks for it.
  StatusOr<int> ChoosePrefillEngine(const wire::EngineCoreRequest& choice,
                                    std::optional<int> failed,
                                    const std::function<bool(int)>& admits);
  bool NeedsPrefill(const Choices& choices, int engine_index, const Prefix& prefix) const;
  void FillIn(Choices* choices, bool is_ours);
  int BeginPrefill(Choices choices, const std::vector<OutputSink*>& sinks, int engine_index);
  KvReaders GoOn(const std::vector<RequestId>& ids, const wire::RawValue& params);
  void SendChoices(const std::vector<wire::EngineCoreRequest*>& choices, int engine_index);
  void SendAdd(const wire::EngineCoreRequest& request, int engine_index);
  Prefix HashPrefix(const wire::EngineCoreRequest& request) const;
  void NotePrefix(int engine_index, const Prefix& hashes);
  Prefills::Calls PrefillCalls();
  Resumption::Calls ResumptionCalls();

  const EngineClientOptions options_;
  wire::FrontendEndpoint* const endpoint_;
  const Thread thread_;
  std::shared_ptr<char> alive_;  // what is posted to the shard holds a weak pointer to it
  uint64_t next_seed_;           // of a request without one, before it is mixed
  Mailbox<Event> events_;
  std::vector<Event> drained_;
  std::vector<int> seats_;  // where each engine is
  EngineHealth health_;
  EngineBalancer balancer_;
  PrefixIndex prefixes_;
  RunningRequests running_;
  Prefills prefills_;
  Resumption resumption_;
  UtilityCalls calls_;
  int num_batches_ = 0;               // that live now
  bool is_decode_missing_ = false;    // a warning says so
  bool is_deadline_watched_ = false;  // the resumption's next one
  bool are_engines_watched_ = false;
  Status held_;   // not OK until Release
  Status ended_;  // not OK after EndAll
  Sharing sharing_;
  std::function<bool(const wire::LoraRequest& lora)> has_other_files_;
  StatsCallback on_stats_;
  std::function<void(int engine_index, int64_t num_moved)> on_take_over_;
  std::function<void(ResumeOutcome)> on_resume_outcome_;
  std::function<void(int engine_index)> on_engine_ready_;
  std::function<void(int engine_index, const std::vector<uint64_t>& hashes)> on_prefix_sent_;
  std::function<void()> on_health_change_;
};

}  // namespace tandem
