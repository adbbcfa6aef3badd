#pragma once

// The wire thread of the frontend's side (wire_endpoint.h) and what it keeps. Its functions have
// two homes: wire_endpoint_frontend.cc is its life, its sockets and the messages of requests,
// wire_endpoint_frontend_engines.cc is who is on the other side: engines that come, become ready,
// take over and go.

#include <unistd.h>

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/mailbox.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/engine_group.h"
#include "proto_msgpack/engine_seats.h"
#include "proto_msgpack/key_gate.h"
#include "proto_msgpack/wire_endpoint.h"
#include "proto_msgpack/wire_endpoint_socket.h"

namespace tandem::wire {

inline constexpr std::string_view kIpc = "ipc://";

// A bound socket and the connections it has now.
struct Listening {
  Socket socket;
  std::set<int> connections;
};

struct FrontendClient {
  FrontendClientCallbacks callbacks;
  Listening input;
  Listening output;
};

struct OutgoingMessage {
  int client_index = 0;
  int seat = 0;
  RequestType type = RequestType::kAdd;
  EncodedMessage message;
};

class FrontendEndpoint::Loop {
 public:
  explicit Loop(FrontendEndpointOptions options)
      : options_(std::move(options)),
        owner_(options_.owner.empty() ? std::to_string(getpid()) : options_.owner),
        clients_(static_cast<size_t>(options_.num_clients)),
        engines_(static_cast<size_t>(options_.num_engines), clients_.size()),
        calls_([this] { wake_up_.Signal(); }),
        outgoing_([this] { wake_up_.Signal(); }) {}

  Status Start();
  Status StartBeside(UniqueFd folder_lock);
  Status Publish();
  void Introduce(std::string own_address);
  void Retire();
  void Close();

  const FrontendEndpointOptions options_;
  const std::string owner_;
  zmq::context_t context_ = MakeContext();  // outlives every socket
  std::vector<FrontendClient> clients_;
  std::string handshake_address_;
  std::string own_address_;
  std::optional<IpcFolder> folder_;

  // Shared with other threads.
  WakeUp wake_up_;
  std::atomic<bool> stop_{false};

 private:
  Status BindIn(std::optional<IpcFolder> folder);
  Status BindHandshake();
  Status BindClients();
  void Protect(Socket* socket) const;
  std::string IpcAddress(std::string_view name) const;
  std::string_view handshake_name() const;
  void Run();
  void RunCalls();
  void SendOutgoing();
  void ReceiveHandshakes();
  void ReceiveReadyResponses(size_t client_index);
  void ReceiveOutputs(size_t client_index);
  void HandleOutputs(size_t client_index);
  bool HasConnectionEvents() const;
  void ApplyConnectionEvents();
  void ForgetConnection(size_t client_index, int connection);
  void ForgetOutputConnection(size_t client_index, int connection);
  void ForgetHandshakeConnection(int connection);
  void Hello(size_t engine_index, int connection, bool takes_over);
  void BecomeReady(size_t seat, const EngineCoreReadyResponse& response);
  void Refuse(size_t seat, const Status& why);
  void IntroduceToOthers(size_t seat);
  void CallEngines(std::string_view method, const RawValue& args);
  void Call(size_t seat, std::string_view method, const RawValue& args);
  std::optional<size_t> SeatOfOutputs(size_t client_index, int connection) const;
  void End(size_t seat, const std::string& why);
  bool MayHaveOutputs(size_t seat) const;
  bool MayHaveOutputs(size_t seat, size_t client_index) const;
  void ReportEnds();
  int WaitMs() const;
  void Lost(size_t seat);
  void AcceptWaitingHello(size_t engine_index);
  // What a message's first frame names, below `limit`; or nullopt after logging it.
  std::optional<size_t> NumberOf(std::string_view identity, size_t limit, std::string_view what);

  Listening handshake_;
  EngineSeats engines_;
  InitMessage init_;
  EngineGroup group_;
  bool is_published_ = false;  // the wire thread's
  bool stood_by_ = false;
  KeyGate gate_;
  PollSet poll_;
  ReceivedMessage received_;
  EncodedMessage encoded_;
  ComplaintLimit complaints_;
  std::vector<EngineCoreOutputs> spare_;
  std::vector<OutgoingMessage> drained_;
  std::vector<std::function<void()>> due_calls_;
  std::thread thread_;

 public:
  Mailbox<std::function<void()>> calls_;
  Mailbox<OutgoingMessage> outgoing_;
  Mailbox<EngineCoreOutputs> spent_;
};

}  // namespace tandem::wire
