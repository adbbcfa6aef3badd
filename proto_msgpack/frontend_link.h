#pragma once

// An engine's link to one frontend: the handshake, then two sockets for each of the frontend's
// clients (network shards). An engine has one, and more while a frontend hands over to the next.
// The engine counts clients over all its links: what a link delivers has its first client's index
// added, and what is sent over it is given without. Thread: the wire thread. Borrows what is in
// Shared. Failure: a frontend that is gone is lost(); the link is of no use afterwards.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/coordinator_link.h"
#include "proto_msgpack/schema.h"
#include "proto_msgpack/wire_endpoint.h"
#include "proto_msgpack/wire_endpoint_socket.h"

namespace tandem::wire {

class FrontendLink {
 public:
  struct Shared {
    zmq::context_t* context = nullptr;
    const EngineEndpointOptions* options = nullptr;
    const std::optional<EngineCoreReadyResponse>* ready = nullptr;  // once the model is loaded
    std::function<void(EngineInput)> deliver;
    // A call that the wire thread answers; client_index as its frontend counts. False: it is for
    // the engine.
    std::function<bool(FrontendLink* from, const UtilityRequest& call)> handle_call;
    // The index of the first of these clients; nullopt: the link is not wanted.
    std::function<std::optional<int>(FrontendLink* of, const EngineAddresses& clients)> admit;
    std::function<void()> on_new_sockets;  // poll others from now on
  };

  FrontendLink(const Shared* shared, std::string address);
  FrontendLink(const FrontendLink&) = delete;

  // Connects and sends HELLO. The address may lead to nobody as yet.
  Status Start();
  // Takes in what has arrived.
  void ReceiveInputs();
  void ReceiveInit();
  void ApplyConnectionEvents();
  // The model is loaded.
  void AnnounceReady();
  // client_index: as the frontend counts. Encoded at once; dropped when the client is lost.
  void Send(int client_index, EngineCoreOutputs* outputs);
  // To the frontend's coordinator, if it has one.
  void ReportLoad(const SchedulerStats& stats, double timestamp);
  // The client sends no requests any more.
  void SetLeft(int client_index);
  // Ends the sockets; is_dead: after ENGINE_CORE_DEAD to each client.
  void Close(bool is_dead);
  // All clients are lost, and reported so. Unsent outputs are dropped.
  void Lose();

  const std::string& address() const { return address_; }
  // Why the frontend is gone; empty while it may be there.
  const std::string& lost() const { return lost_; }
  // Something listens at the address, or did.
  bool has_met() const { return has_met_; }
  bool is_ready() const { return phase_ == Phase::kReady; }
  bool has_left() const;  // no client sends requests
  // Of the first client; no two frontends have it.
  const std::string& input_address() const { return input_address_; }
  int first_client() const { return first_client_; }
  int num_clients() const { return static_cast<int>(clients_.size()); }
  void AddTo(PollSet* poll);

 private:
  // kHello: waiting for the addresses. kConnecting: waiting for the model and for the connections
  // to open. kReady: READY was sent.
  enum class Phase { kHello, kConnecting, kReady };

  // Where a client's requests come from and where its outputs go.
  struct Client {
    Socket input;
    Socket output;
    bool was_connected = false;
    bool lost = false;
    bool has_left = false;    // it sends requests to another engine
    bool comes_back = false;  // since the last events
  };

  bool Has(int client_index) const { return client_index >= 0 && client_index < num_clients(); }
  Client& client(int index) { return clients_[static_cast<size_t>(index)]; }
  void SendStatus(std::string_view word);
  void SetKeys(Socket* socket, std::string_view address) const;
  void ConnectClients(const EngineAddresses& addresses);
  Status Connect(Client* client, const std::string& input, const std::string& output);
  void SendReadyResponse(Client* client);
  void SendReadyWhenPossible();
  void HandleInput(std::span<const std::string_view> frames);
  bool IsOurs(int32_t client_index, std::string_view what);
  void RefuseAdd(std::string_view body, const Status& why);
  void LoseClient(int client_index);

  const Shared* const shared_;
  const std::string address_;
  Socket handshake_;
  std::vector<Client> clients_;
  CoordinatorLink coordinator_;
  Phase phase_ = Phase::kHello;
  int seat_ = 0;  // what the frontend calls this engine
  int first_client_ = 0;
  std::string input_address_;
  bool has_met_ = false;
  std::string lost_;
  ReceivedMessage received_;
  EncodedMessage encoded_;
  ComplaintLimit complaints_;
  std::vector<std::string_view> frames_;
};

}  // namespace tandem::wire
