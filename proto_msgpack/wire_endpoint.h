#pragma once

// The thread that owns a process's ZMQ sockets, one class for each side of the wire.
//
//   FrontendEndpoint (binds)       messages               EngineEndpoint (connects)
//   handshake ROUTER               HELLO, init, READY     DEALER
//   input ROUTER, one per client   ADD, ABORT, UTILITY    DEALER
//   output PULL, one per client    EngineCoreOutputs      PUSH
//
// The identity of an engine's DEALERs is its index, 2 bytes little-endian. An engine of ours may
// take over from the one of its index that runs: the frontend gives it the other one of the two
// seats that each index has (index and index + num_engines), whose number is the identity of its
// inputs. Callbacks, Send and outputs have seats; without a take-over a seat is the engine's index.
// Threads: each endpoint runs one wire thread (plus ZMQ's own). Methods may be called from any
// thread; callbacks run on the wire thread and must only post. When idle, both sleep in the kernel.
// A peer that vanishes is noticed when its connection closes (at once on ipc, by the kernel's
// probes on tcp): the frontend reports the engine lost and accepts its next HELLO; the engine
// reports its clients lost, so that their requests are dropped, and sends HELLO again.
// Failure: addresses that cannot be bound are a Status of Start; messages that cannot be decoded
// are logged and dropped.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "proto_msgpack/ipc_folder.h"
#include "proto_msgpack/schema.h"
#include "proto_msgpack/tcp_keys.h"

namespace tandem::wire {

struct EncodedMessage;

// A utility call that our engine's wire thread answers by itself, with nil, so that a step under
// way does not delay it: the process runs and reads. Only for engines that are Tandem's.
inline constexpr std::string_view kPingMethod = "tandem_ping";
// Likewise: the client sends no requests any more, because another engine has taken over. When all
// clients have said so, on_leave is called with OK.
inline constexpr std::string_view kLeaveMethod = "tandem_leave";
// Likewise: the frontend does not want the engine. on_leave is called with the reason, the
// argument.
inline constexpr std::string_view kRefuseMethod = "tandem_refuse";
// Likewise, while one frontend hands over to the next (docs/design.md): (address), the engine meets
// the frontend there as well; and the frontend that calls it has the handshake address now.
inline constexpr std::string_view kJoinMethod = "tandem_join";
inline constexpr std::string_view kHomeMethod = "tandem_home";

// Answered by our engine's loop: (level), as --log-level.
inline constexpr std::string_view kSetLogLevelMethod = "tandem_set_log_level";
// Likewise: () -> [virtual bytes, resident bytes, CPU ms, start in Unix ms, open files] of the
// process.
inline constexpr std::string_view kProcessMethod = "tandem_process";
// Likewise, so that all engines have other weights under a name, or none: (LoRARequest) -> true,
// the adapter was read and is kept beside what requests get; (LoRARequest, bool) -> bool, it takes
// the place of that or is dropped; false: nothing was kept.
inline constexpr std::string_view kStageLoraMethod = "tandem_stage_lora";
inline constexpr std::string_view kSettleLoraMethod = "tandem_settle_lora";
// Likewise: () -> [name, value, name, value, ...], vLLM's facts about the KV cache as texts.
inline constexpr std::string_view kCacheFactsMethod = "tandem_cache_facts";

// Client indices are below it, over all frontends of an engine.
inline constexpr int kMaxClients = 1024;

struct FrontendEndpointOptions {
  // "ipc:///path/file" or "tcp://host:port" ("tcp://host:0" picks a free port). With ipc the file
  // is a link to the socket of the frontend that serves (ipc_folder.h).
  std::string handshake_address;
  // Where input and output sockets are bound: "ipc:///dir" or "tcp://host". The folder of ipc
  // sockets is created when missing; only this user may have access to it (0700).
  std::string data_address;
  int num_engines = 1;
  int num_clients = 1;                    // one per network shard
  size_t max_message_bytes = 256u << 20;  // a larger message from an engine is dropped
  std::string owner = {};                 // the ending of ipc names; empty: the process id
  std::optional<TcpKeys> tcp_keys = {};   // with tcp; else it is open
  // With tcp and without keys: the engines are a group (engine_group.h), whose first one has this
  // address. Empty: they are not.
  std::string group_master = {};
  // How long an engine that is gone may keep open what its outputs come over. Longer than an engine
  // that ends takes to send its last ones.
  double last_outputs_s = 5;
};

// What one client (network shard) is called with, on the wire thread. They must only post.
struct FrontendClientCallbacks {
  std::function<void(EngineCoreOutputs)> on_outputs;
  // While the engine in the other seat of its index is ready, this one takes over from it.
  std::function<void(int seat, const EngineCoreReadyResponse&)> on_engine_ready;
  // After all outputs that it had sent.
  std::function<void(int seat, const Status& why)> on_engine_lost;
};

class FrontendEndpoint {
 public:
  explicit FrontendEndpoint(FrontendEndpointOptions options);
  ~FrontendEndpoint();

  // REQUIRES: before Start, once for each client.
  void SetClient(int client_index, FrontendClientCallbacks callbacks);
  Status Start();
  // For a frontend that is to take over from the one that serves in the same folder and shares its
  // lock: engines come only when the other one introduces them, until Publish. REQUIRES: ipc.
  Status StartBeside(UniqueFd folder_lock);
  // Once started. The bound handshake address, with the real port; and the one where only engines
  // come that were introduced.
  std::string handshake_address() const;
  std::string own_address() const;

  // Engines of ours that are ready now meet the frontend at this address as well.
  void Introduce(std::string own_address);
  // The handshake address leads to this frontend from now on, and its engines look here for the
  // next one. Start does it.
  Status Publish();
  // Another frontend has the address now and shares the folder's lock: this one lets go of it, and
  // introduces nobody any more. REQUIRES: ipc.
  void Retire();
  // Where the sockets are and who has the lock; nullptr with tcp. REQUIRES: started.
  IpcFolder* folder() const;

  // Queues one message for an engine. Dropped when the engine is not connected (on_engine_lost is
  // called before or after).
  void Send(int client_index, int seat, RequestType type, EncodedMessage message);
  // Returns a message that was delivered, so that its memory is used for the next one.
  void Recycle(EngineCoreOutputs outputs);

  // Sends what is queued for at most a second, then stops the thread. Called by the destructor.
  void Close();

  const FrontendEndpointOptions& options() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

struct EngineEndpointOptions {
  std::string handshake_address;
  int engine_index = 0;
  bool local = true;
  bool headless = false;
  // If an engine of this index serves the frontend, take over from it; else wait until it is gone.
  bool takes_over = false;
  std::optional<TcpKeys> tcp_keys = {};  // for frontends at tcp addresses
  // On the wire thread; must only post. OK: another engine has taken over, no request follows.
  std::function<void(const Status& why)> on_leave = {};
  // A larger message from a frontend is dropped. Images are the largest (frontend/media_flags.h).
  size_t max_message_bytes = 640u << 20;
};

class EngineEndpoint {
 public:
  // deliver gets each decoded message on the wire thread, until Close. It must only post.
  EngineEndpoint(EngineEndpointOptions options, std::function<void(EngineInput)> deliver);
  ~EngineEndpoint();

  // Connects and sends HELLO, now and whenever a frontend comes back. Never waits for it.
  Status Start();
  // The model is loaded: sends `response` to each client, now and after each new handshake.
  void AnnounceReady(EngineCoreReadyResponse response);
  // Queues one message for a client; encoded and sent on the wire thread. Dropped when the client
  // is not connected. REQUIRES: !outputs.is_empty().
  void Send(int client_index, EngineCoreOutputs outputs);
  // A message to fill, with the memory and the old content of one that was sent, so that a steady
  // step allocates nothing. Thread: the one that calls Send.
  EngineCoreOutputs TakeSpent();

  // Sends what is queued for at most 4 s, then stops the thread. Called by the destructor.
  void Close();
  // Sends ENGINE_CORE_DEAD to every client, then Close.
  void CloseDead();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace tandem::wire
