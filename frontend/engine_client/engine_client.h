#pragma once

// The engines as one shard sees them: a request goes in, its outputs come to a sink; abort; death.
// Thread: the shard's own (callbacks too); what the wire thread delivers is posted here, a whole
// engine message at a time. Owns: a copy of each running request and the tokens it has produced, so
// that it can be sent again. Does not own sinks.
// Failure: no healthy engine or too many requests is a Status of Submit; an engine that dies ends
// each of its streams with OnError(UNAVAILABLE) and is used again after its next handshake.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/mailbox.h"
#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {
class FrontendEndpoint;
struct EncodedMessage;
}  // namespace tandem::wire

namespace tandem {

// Receives one request's outputs. The last call is OnOutput with output.finished(), or OnError; the
// sink may be destroyed in it. It may submit and abort from inside a call.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  // timestamp: engine-monotonic seconds of the step. The output is gone after the call.
  virtual void OnOutput(const wire::EngineCoreOutput& output, double timestamp) = 0;
  // The request ended without a finish: refused by the engine (INVALID_ARGUMENT), retryable or
  // engine lost (UNAVAILABLE), else INTERNAL.
  virtual void OnError(const Status& status) = 0;
  // The model made NaN or infinite logits for the request; the output or the error follows.
  virtual void OnNansInLogits() {}
};

struct EngineClientOptions {
  int client_index = 0;  // this shard's; the engine answers on that client's sockets
  int num_clients = 1;
  int num_engines = 1;
  size_t max_inflight = 1 << 16;  // requests of this shard; above it Submit is RESOURCE_EXHAUSTED
  // Sent to an engine that has said nothing since; above it Submit is UNAVAILABLE.
  size_t max_unheard_bytes = 256u << 20;
  double hang_timeout_s = 0;  // for CheckAlive; 0: a connected engine is alive
};

class EngineClient {
 public:
  // Runs a function on the shard's thread; called on the wire thread.
  using Post = std::function<void(std::function<void()>)>;
  using StatsCallback =
      std::function<void(int engine_index, const wire::SchedulerStats& stats, double timestamp)>;
  using UtilityCallback = std::function<void(StatusOr<wire::RawValue> result)>;

  // Registers with the endpoint. REQUIRES: endpoint not started, closed before this is destroyed.
  EngineClient(EngineClientOptions options, wire::FrontendEndpoint* endpoint, Post post);
  ~EngineClient();

  // Sends the request to the least loaded engine (or to request.data_parallel_rank). Sets
  // client_index. *sink must live until its last call or Abort.
  // ALREADY_EXISTS: the id is running. UNAVAILABLE: no engine, or one that takes nothing.
  // RESOURCE_EXHAUSTED: too many.
  Status Submit(wire::EngineCoreRequest request, OutputSink* sink);

  // Ends requests: the engine is told (in one message per engine), the sinks hear nothing more.
  // Ids that are unknown or have ended are ignored.
  void Abort(const RequestId& request_id);
  void Abort(const std::vector<RequestId>& request_ids);
  // The operator's abort: each sink hears a last output with finish_reason abort, the engine is
  // told. A name is a request's id here, its external id, which choices share, or the id of an
  // answer to /v1/completions, whose external ids have the prompt's number behind it; no names: all
  // requests of this shard. Returns how many ended.
  size_t EndAborted(const std::vector<std::string>& names);
  // The server ends: each sink hears OnError(why), the engines are told, Submit says why from now
  // on.
  void EndAll(const Status& why);
  // Runs a function on the shard's thread, unless this is gone by then. Any thread.
  void RunOnShard(std::function<void()> function);

  // Calls a utility method of one engine ("reset_prefix_cache", args a packed msgpack array; empty:
  // none). The callback gets the packed result (empty: nil) or why there is none.
  void CallUtility(int engine_index, std::string_view method, wire::RawValue args,
                   UtilityCallback callback);

  // OK while every engine is connected and ready; else says which is not.
  Status health() const;
  bool healthy() const { return health().ok(); }
  // health(), and each engine's loop answers: asks it a small question unless one is open, and is
  // UNAVAILABLE once one has been open for hang_timeout_s. Never waits. now: any monotonic clock.
  Status CheckAlive(double now);
  bool engine_ready(int engine_index) const {
    return engines_[static_cast<size_t>(engine_index)].ready;
  }
  int num_engines() const { return options_.num_engines; }
  size_t num_inflight() const { return running_.size(); }
  // Engines and running requests as text, for a debugger.
  std::string DebugString() const;
  // Where a running request was sent; 0 for one that is not running.
  int EngineOf(const RequestId& request_id) const;

  // What the engines said at READY, the smallest max_model_len, the sum of num_gpu_blocks over all.
  // Nullptr until each has been ready once.
  const wire::EngineCoreReadyResponse* engine_info() const;
  // What one engine said; its defaults before it has been ready once.
  const wire::EngineCoreReadyResponse& engine_info(int engine_index) const {
    return engines_[static_cast<size_t>(engine_index)].response;
  }

  // Called once for each engine message that carries stats, after its outputs.
  void OnStats(StatsCallback callback) { on_stats_ = std::move(callback); }
  // Called whenever health() may have changed.
  void OnHealthChange(std::function<void()> callback) { on_health_change_ = std::move(callback); }

 private:
  struct Running {
    wire::EngineCoreRequest request;
    std::vector<TokenId> emitted;  // all tokens so far: prompt + emitted is what a new engine needs
    OutputSink* sink = nullptr;
    int engine_index = 0;
  };
  struct Engine {
    bool ready = false;
    bool was_ready = false;
    Status why_not;
    wire::EngineCoreReadyResponse response;
    int64_t num_inflight = 0;   // of this shard
    wire::AbortRequest aborts;  // not sent yet
    double num_waiting = 0;     // from its last stats, plus what was submitted since
    double num_running = 0;
    double kv_cache_usage = 0;
    size_t unheard_bytes = 0;        // sent since it last said something
    std::optional<double> asked_at;  // an open question of CheckAlive
  };
  using RunningMap = std::unordered_map<RequestId, Running>;
  struct PendingCall {
    int engine_index = 0;
    UtilityCallback callback;
  };
  struct Event {  // from the wire thread
    enum class Kind { kOutputs, kReady, kLost } kind = Kind::kOutputs;
    wire::EngineCoreOutputs outputs;
    int engine_index = 0;
    wire::EngineCoreReadyResponse response;
    Status why;
  };

  void DrainEvents();
  void HandleOutputs(const wire::EngineCoreOutputs& outputs);
  void HandleOutput(const wire::EngineCoreOutput& output, double timestamp);
  void HandleUtility(const wire::UtilityOutput& reply);
  void HandleStats(int engine_index, const wire::SchedulerStats& stats, double timestamp);
  void HandleReady(int engine_index, const wire::EngineCoreReadyResponse& response);
  void HandleLost(int engine_index, const Status& why);
  void EndWithError(RunningMap::iterator position, const Status& status);
  // Aborts those that run, one by one, each sink's last call behind its abort; the engines are told
  // in one message each. Returns how many there were.
  size_t EndEach(
      const std::vector<RequestId>& request_ids,
      const std::function<void(const RequestId& request_id, OutputSink* sink)>& last_call);
  void SendAborts();
  void Send(int engine_index, wire::RequestType type, wire::EncodedMessage message);
  // OK, or why this engine is given no request now.
  Status CheckTakesRequests(int engine_index) const;
  StatusOr<int> ChooseEngine(const wire::EngineCoreRequest& request);
  void UpdateEngineInfo();

  const EngineClientOptions options_;
  wire::FrontendEndpoint* const endpoint_;
  const Post post_;
  std::shared_ptr<char> alive_;  // what is posted to the shard holds a weak pointer to it
  Mailbox<Event> events_;
  std::vector<Event> drained_;
  bool is_draining_ = false;  // aborts wait for the end of the batch and go out together
  std::vector<Engine> engines_;
  size_t next_scan_start_ = 0;
  wire::EngineCoreReadyResponse engine_info_;
  bool has_engine_info_ = false;
  RunningMap running_;
  Status ended_;  // not OK after EndAll
  std::unordered_map<uint64_t, PendingCall> calls_;
  uint64_t next_call_id_ = 1;
  StatsCallback on_stats_;
  std::function<void()> on_health_change_;
};

// The Status form of an error the engine reported for a request.
Status ToStatus(const wire::EngineCoreError& error);

}  // namespace tandem
