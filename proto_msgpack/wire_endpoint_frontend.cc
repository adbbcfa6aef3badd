#include <unistd.h>

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "common/check.h"
#include "common/log.h"
#include "common/mailbox.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/engine_seats.h"
#include "proto_msgpack/wire_endpoint.h"
#include "proto_msgpack/wire_endpoint_socket.h"

namespace tandem::wire {
namespace {

constexpr std::string_view kIpc = "ipc://";
constexpr int kLingerMs = 1000;
constexpr size_t kMaxSpent = 16;  // messages whose memory is kept

constexpr std::string_view kInput = "input_", kOutput = "output_";

// A bound socket and the connections it has now.
struct Listening {
  Socket socket;
  std::set<int> connections;
};

struct Client {
  FrontendClientCallbacks callbacks;
  Listening input;
  Socket output;
};

struct Outgoing {
  int client_index = 0;
  int seat = 0;
  RequestType type = RequestType::kAdd;
  EncodedMessage message;
};

}  // namespace

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
  std::vector<Client> clients_;
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
  std::string IpcAddress(std::string_view name) const;
  std::string_view handshake_name() const;
  void Run();
  void RunCalls();
  void SendOutgoing();
  void ReceiveHandshakes();
  void ReceiveReadyResponses(size_t client_index);
  void ReceiveOutputs(size_t client_index);
  void HandleOutputs(size_t client_index);
  void ApplyConnectionEvents();
  void ForgetConnection(size_t client_index, int connection);
  void ForgetHandshakeConnection(int connection);
  void Hello(size_t engine_index, int connection, bool takes_over);
  void BecomeReady(size_t seat, const EngineCoreReadyResponse& response);
  void Refuse(size_t seat, const Status& why);
  void IntroduceToOthers(size_t seat);
  void CallEngines(std::string_view method, const RawValue& args);
  void Call(size_t seat, std::string_view method, const RawValue& args);
  void Lost(size_t seat, const std::string& why);
  void AcceptWaitingHello(size_t engine_index);
  // What a message's first frame names, below `limit`; or nullopt after logging it.
  std::optional<size_t> NumberOf(std::string_view identity, size_t limit, std::string_view what);

  Listening handshake_;
  EngineSeats engines_;
  InitMessage init_;
  bool is_published_ = false;  // the wire thread's
  bool stood_by_ = false;
  PollSet poll_;
  ReceivedMessage received_;
  EncodedMessage encoded_;
  ComplaintLimit complaints_;
  std::vector<EngineCoreOutputs> spare_;
  std::vector<Outgoing> drained_;
  std::vector<std::function<void()>> due_calls_;
  std::thread thread_;

 public:
  Mailbox<std::function<void()>> calls_;
  Mailbox<Outgoing> outgoing_;
  Mailbox<EngineCoreOutputs> spent_;
};

Status FrontendEndpoint::Loop::Start() {
  std::optional<IpcFolder> folder;
  if (options_.data_address.starts_with(kIpc)) {
    ASSIGN_OR_RETURN(folder, IpcFolder::Take(options_.data_address.substr(kIpc.size()), owner_));
  }
  RETURN_IF_ERROR(BindIn(std::move(folder)));
  RETURN_IF_ERROR(Publish());
  thread_ = std::thread([this] { Run(); });
  return OkStatus();
}

Status FrontendEndpoint::Loop::StartBeside(UniqueFd folder_lock) {
  stood_by_ = true;
  const std::string path = options_.data_address.substr(kIpc.size());
  RETURN_IF_ERROR(BindIn(IpcFolder::Join(path, owner_, std::move(folder_lock))));
  thread_ = std::thread([this] { Run(); });
  return OkStatus();
}

Status FrontendEndpoint::Loop::BindIn(std::optional<IpcFolder> folder) {
  WarnIfOpenToNetwork(options_.handshake_address);
  WarnIfOpenToNetwork(options_.data_address);
  folder_ = std::move(folder);
  RETURN_IF_ERROR(BindHandshake());
  RETURN_IF_ERROR(BindClients());
  poll_.Reset(wake_up_);
  poll_.Add(handshake_.socket);
  for (Client& client : clients_) {
    poll_.Add(client.input.socket);
    poll_.Add(client.output);
  }
  return OkStatus();
}

// In the folder of the sockets.
std::string FrontendEndpoint::Loop::IpcAddress(std::string_view name) const {
  return std::string(kIpc) + folder_->SocketOf(name);
}

// Empty: it is no file in the folder.
std::string_view FrontendEndpoint::Loop::handshake_name() const {
  const std::string_view address = options_.handshake_address;
  const std::string folder = options_.data_address + "/";
  const bool is_there = folder_ && address.starts_with(folder);
  return is_there ? address.substr(folder.size()) : std::string_view();
}

Status FrontendEndpoint::Loop::BindHandshake() {
  handshake_.socket.Open(context_, zmq::socket_type::router);
  handshake_.socket.FollowPeers();
  handshake_.socket.Monitor(context_);
  const std::string_view name = handshake_name();
  const std::string bound = name.empty() ? options_.handshake_address : IpcAddress(name);
  RETURN_IF_ERROR(handshake_.socket.Bind(bound));
  own_address_ = handshake_.socket.bound_address();
  handshake_address_ = name.empty() ? own_address_ : options_.handshake_address;
  return OkStatus();
}

Status FrontendEndpoint::Loop::BindClients() {
  for (size_t i = 0; i < clients_.size(); ++i) {
    const auto address = [&](std::string_view name) {
      return folder_ ? IpcAddress(std::string(name) + std::to_string(i))
                     : options_.data_address + ":0";
    };
    Socket& input = clients_[i].input.socket;
    input.Open(context_, zmq::socket_type::router);
    input.FollowPeers();
    input.NoticeVanishedHosts();
    input.Monitor(context_);
    RETURN_IF_ERROR(input.Bind(address(kInput)));
    init_.addresses.inputs.push_back(input.bound_address());

    Socket& output = clients_[i].output;
    output.Open(context_, zmq::socket_type::pull);
    RETURN_IF_ERROR(output.Bind(address(kOutput)));
    init_.addresses.outputs.push_back(output.bound_address());
  }
  return OkStatus();
}

Status FrontendEndpoint::Loop::Publish() {
  const std::string_view name = handshake_name();
  if (name.empty()) return OkStatus();
  RETURN_IF_ERROR(folder_->Publish(name));
  calls_.Push([this] {
    is_published_ = true;
    CallEngines(kHomeMethod, PackedArray({}));
  });
  return OkStatus();
}

void FrontendEndpoint::Loop::Retire() {
  folder_->LetGo();
  calls_.Push([this] { is_published_ = false; });
}

void FrontendEndpoint::Loop::Introduce(std::string own_address) {
  calls_.Push([this, own_address = std::move(own_address)] {
    CallEngines(kJoinMethod, PackedStrings({own_address}));
  });
}

void FrontendEndpoint::Loop::Close() {
  if (!thread_.joinable()) return;
  stop_ = true;
  wake_up_.Signal();
  thread_.join();
}

void FrontendEndpoint::Loop::Run() {
  SetThreadName("wire");
  while (!stop_) {
    poll_.Wait();
    wake_up_.Clear();
    RunCalls();
    SendOutgoing();
    for (size_t i = 0; i < clients_.size(); ++i) ReceiveOutputs(i);
    ApplyConnectionEvents();
    ReceiveHandshakes();
    for (size_t i = 0; i < clients_.size(); ++i) ReceiveReadyResponses(i);
  }
  RunCalls();
  SendOutgoing();
  if (!handshake_name().empty()) folder_->Withdraw(handshake_name());
  handshake_.socket.Close(kLingerMs);
  for (Client& client : clients_) {
    client.input.socket.Close(kLingerMs);
    client.output.Close();
  }
}

void FrontendEndpoint::Loop::RunCalls() {
  if (!calls_.Drain(&due_calls_)) return;
  for (const auto& call : due_calls_) call();
  due_calls_.clear();
}

void FrontendEndpoint::Loop::SendOutgoing() {
  if (!outgoing_.Drain(&drained_)) return;
  std::vector<std::string_view> frames;
  for (const Outgoing& out : drained_) {
    const std::string identity = EngineIdentity(out.seat);
    const char type = static_cast<char>(out.type);
    frames.assign({identity, std::string_view(&type, 1), out.message.body});
    frames.insert(frames.end(), out.message.aux.begin(), out.message.aux.end());
    if (!clients_[static_cast<size_t>(out.client_index)].input.socket.Send(frames)) {
      LOG_DEBUG << "engine " << engines_.IndexOf(static_cast<size_t>(out.seat))
                << " is gone, a message to it was dropped";
    }
  }
  drained_.clear();
}

std::optional<size_t> FrontendEndpoint::Loop::NumberOf(std::string_view identity, size_t limit,
                                                       std::string_view what) {
  const int index = EngineIndexOf(identity);
  if (index >= 0 && static_cast<size_t>(index) < limit) {
    return static_cast<size_t>(index);
  }
  if (!complaints_.Next()) return std::nullopt;
  LOG_WARNING << what << " of an unknown engine (identity of " << identity.size()
              << " bytes, index " << index << ", engines expected: " << engines_.num_engines()
              << ")";
  return std::nullopt;
}

void FrontendEndpoint::Loop::ReceiveHandshakes() {
  while (handshake_.socket.Receive(&received_)) {
    const auto frames = received_.frames();
    const auto engine_index = NumberOf(frames[0], engines_.num_engines(), "handshake");
    if (!engine_index) continue;
    EngineStatus message;
    const Status status = received_.total_bytes() > options_.max_message_bytes
                              ? ResourceExhaustedError("message too large")
                              : Decode(frames.subspan(1), &message);
    if (!status.ok()) {
      LOG_WARNING << "handshake of engine " << *engine_index
                  << " cannot be decoded: " << status.message();
    } else if (message.status == kStatusHello) {
      const int connection = received_.connection();
      ApplyConnectionEvents();  // it may have closed since; `received_` is not valid after this
      if (handshake_.connections.contains(connection)) {
        Hello(*engine_index, connection, message.takes_over);
      }
    } else if (message.status == kStatusReady) {
      LOG_DEBUG << "engine " << *engine_index << " sent READY";
    } else {
      LOG_WARNING << "engine " << *engine_index << " sent the unknown status \"" << message.status
                  << "\"";
    }
  }
}

void FrontendEndpoint::Loop::Hello(size_t engine_index, int connection, bool takes_over) {
  const std::optional<size_t> seat = engines_.SeatFor(engine_index, connection, takes_over);
  if (!seat) {
    LOG_WARNING << "another engine " << engine_index << " waits until "
                << (takes_over ? "the one before has left" : "this one is gone");
    engines_.waiting(engine_index) = {connection, takes_over};
    return;
  }
  init_.seat.reset();
  if (*seat != engine_index) init_.seat = static_cast<int32_t>(*seat);
  Encode(init_, &encoded_);
  const std::string identity = EngineIdentity(static_cast<int>(engine_index));
  const std::string_view frames[] = {identity, encoded_.body};
  if (!handshake_.socket.Send(frames)) return;
  engines_[*seat].state = SeatedEngine::State::kConnected;
  engines_[*seat].handshake_connection = connection;
  LOG_INFO << "engine " << engine_index << " connected";
}

void FrontendEndpoint::Loop::AcceptWaitingHello(size_t engine_index) {
  const std::optional<WaitingHello> hello = engines_.waiting(engine_index);
  if (!hello) return;
  const bool is_there = handshake_.connections.contains(hello->connection);
  const bool has_seat =
      engines_.SeatFor(engine_index, hello->connection, hello->takes_over).has_value();
  if (is_there && !has_seat) return;
  engines_.waiting(engine_index).reset();
  if (is_there) Hello(engine_index, hello->connection, hello->takes_over);
}

void FrontendEndpoint::Loop::ReceiveReadyResponses(size_t client_index) {
  Client& client = clients_[client_index];
  while (client.input.socket.Receive(&received_)) {
    const auto frames = received_.frames();
    const auto seat = NumberOf(frames[0], engines_.size(), "ready response");
    if (!seat) continue;
    SeatedEngine& engine = engines_[*seat];
    EngineCoreReadyResponse response;
    const Status status = Decode(frames.subspan(1), &response);
    if (!status.ok()) {
      LOG_WARNING << "ready response of engine " << engines_.IndexOf(*seat)
                  << " cannot be decoded: " << status.message();
      continue;
    }
    const int connection = received_.connection();
    ApplyConnectionEvents();
    if (!client.input.connections.contains(connection)) continue;
    // An engine that lost its connection to one client and kept the others sends no HELLO again.
    const bool has_met = engine.state != SeatedEngine::State::kNew || engine.alive();
    if (!has_met) continue;
    engine.input_connections[client_index] = connection;
    const bool is_new = engine.state != SeatedEngine::State::kReady &&
                        engine.state != SeatedEngine::State::kRefused;
    if (is_new && engine.is_connected_to_all()) BecomeReady(*seat, response);
  }
}

void FrontendEndpoint::Loop::BecomeReady(size_t seat, const EngineCoreReadyResponse& response) {
  const Status fits = engines_.CheckSuccessor(seat, response);
  if (!fits.ok()) return Refuse(seat, fits);
  engines_.SetReady(seat, response);
  LOG_INFO << "engine " << engines_.IndexOf(seat) << " is ready";
  for (const Client& each : clients_) {
    if (each.callbacks.on_engine_ready) {
      each.callbacks.on_engine_ready(static_cast<int>(seat), response);
    }
  }
  IntroduceToOthers(seat);
  // An engine that was introduced looks for its next frontend elsewhere until then.
  if (is_published_ && stood_by_ && response.peer() == Peer::kTandem) {
    Call(seat, kHomeMethod, PackedArray({}));
  }
}

// Engines that start find only the frontend that has the address.
void FrontendEndpoint::Loop::IntroduceToOthers(size_t seat) {
  const std::string_view name = handshake_name();
  if (!is_published_ || name.empty() || engines_[seat].peer != Peer::kTandem) return;
  for (const std::string& path : folder_->OthersOf(name)) {
    Call(seat, kJoinMethod, PackedStrings({std::string(kIpc) + path}));
  }
}

// Each engine of ours that is ready.
void FrontendEndpoint::Loop::CallEngines(std::string_view method, const RawValue& args) {
  for (size_t seat = 0; seat < engines_.size(); ++seat) {
    const SeatedEngine& engine = engines_[seat];
    const bool is_there = engine.state == SeatedEngine::State::kReady;
    if (is_there && engine.peer == Peer::kTandem) Call(seat, method, args);
  }
}

// Of what the engine's wire thread answers.
void FrontendEndpoint::Loop::Call(size_t seat, std::string_view method, const RawValue& args) {
  UtilityRequest call;
  call.method = method;
  call.args = args;
  Outgoing out = {0, static_cast<int>(seat), RequestType::kUtility, {}};
  Encode(call, &out.message);
  outgoing_.Push(std::move(out));
}

void FrontendEndpoint::Loop::Refuse(size_t seat, const Status& why) {
  LOG_ERROR << "another engine " << engines_.IndexOf(seat) << " is refused: " << why.message();
  engines_[seat].state = SeatedEngine::State::kRefused;
  Call(seat, kRefuseMethod, PackedStrings({why.message()}));
}

void FrontendEndpoint::Loop::ReceiveOutputs(size_t client_index) {
  while (clients_[client_index].output.Receive(&received_)) HandleOutputs(client_index);
}

void FrontendEndpoint::Loop::HandleOutputs(size_t client_index) {
  const auto frames = received_.frames();
  if (frames.size() == 1 && frames[0] == kEngineCoreDead) {
    // The message does not name its engine. Of several engines the one that died also closes its
    // connections, which identifies it.
    LOG_ERROR << "an engine reports that it is dead";
    const std::optional<size_t> only = engines_.OnlyAlive();
    if (only) Lost(*only, "it reported its own death");
    return;
  }
  if (received_.total_bytes() > options_.max_message_bytes) {
    if (complaints_.Next()) {
      LOG_WARNING << "a message of " << received_.total_bytes() << " bytes was dropped";
    }
    return;
  }
  if (spare_.empty()) spent_.Drain(&spare_);
  EngineCoreOutputs outputs;
  if (!spare_.empty()) {
    outputs = std::move(spare_.back());
    spare_.pop_back();
    if (spare_.size() > kMaxSpent) spare_.resize(kMaxSpent);
  }
  const Status status = Decode(frames, &outputs);
  if (!status.ok()) {
    if (complaints_.Next()) {
      LOG_WARNING << "an engine's message cannot be decoded: " << status.message();
    }
    return;
  }
  if (outputs.engine_index < 0 || static_cast<size_t>(outputs.engine_index) >= engines_.size()) {
    LOG_WARNING << "outputs of engine " << outputs.engine_index << ", which is not expected";
    return;
  }
  const Client& client = clients_[client_index];
  if (client.callbacks.on_outputs) client.callbacks.on_outputs(std::move(outputs));
}

void FrontendEndpoint::Loop::ApplyConnectionEvents() {
  ConnectionEvent event;
  while (handshake_.socket.NextEvent(&event)) {
    if (event.opened) {
      handshake_.connections.insert(event.connection);
    } else {
      handshake_.connections.erase(event.connection);
      ForgetHandshakeConnection(event.connection);
    }
  }
  for (size_t i = 0; i < clients_.size(); ++i) {
    Listening& input = clients_[i].input;
    while (input.socket.NextEvent(&event)) {
      if (event.opened) {
        input.connections.insert(event.connection);
      } else {
        input.connections.erase(event.connection);
        ForgetConnection(i, event.connection);
      }
    }
  }
}

void FrontendEndpoint::Loop::ForgetHandshakeConnection(int connection) {
  // vLLM's engines close it once they are ready, so this alone does not mean a death.
  for (size_t i = 0; i < engines_.size(); ++i) {
    if (engines_[i].handshake_connection != connection) continue;
    engines_[i].handshake_connection = -1;
    AcceptWaitingHello(engines_.IndexOf(i));
  }
}

void FrontendEndpoint::Loop::ForgetConnection(size_t client_index, int connection) {
  for (size_t i = 0; i < engines_.size(); ++i) {
    SeatedEngine& engine = engines_[i];
    if (engine.input_connections[client_index] != connection) continue;
    engine.input_connections[client_index] = -1;
    // What it sent before it died is delivered before its loss is reported.
    for (size_t c = 0; c < clients_.size(); ++c) ReceiveOutputs(c);
    Lost(i, "its connection closed");
    AcceptWaitingHello(engines_.IndexOf(i));
  }
}

void FrontendEndpoint::Loop::Lost(size_t seat, const std::string& why) {
  SeatedEngine& engine = engines_[seat];
  const bool was_ready = engine.state == SeatedEngine::State::kReady;
  engine.state = SeatedEngine::State::kNew;
  engine.handshake_connection = -1;
  if (!was_ready) return;
  const std::string name = "engine " + std::to_string(engines_.IndexOf(seat));
  if (engines_.is_current(seat)) {
    LOG_ERROR << name << " is lost: " << why;
  } else {
    LOG_INFO << "the one that was " << name << " before has left";
  }
  const Status status = UnavailableError(name + " is lost: " + why);
  for (const Client& client : clients_) {
    if (client.callbacks.on_engine_lost) {
      client.callbacks.on_engine_lost(static_cast<int>(seat), status);
    }
  }
}

FrontendEndpoint::FrontendEndpoint(FrontendEndpointOptions options)
    : loop_(std::make_unique<Loop>(std::move(options))) {}
FrontendEndpoint::~FrontendEndpoint() { Close(); }

void FrontendEndpoint::SetClient(int client_index, FrontendClientCallbacks callbacks) {
  loop_->clients_.at(static_cast<size_t>(client_index)).callbacks = std::move(callbacks);
}
Status FrontendEndpoint::Start() { return loop_->Start(); }
Status FrontendEndpoint::StartBeside(UniqueFd folder_lock) {
  return loop_->StartBeside(std::move(folder_lock));
}
std::string FrontendEndpoint::handshake_address() const { return loop_->handshake_address_; }
std::string FrontendEndpoint::own_address() const { return loop_->own_address_; }
void FrontendEndpoint::Introduce(std::string own_address) {
  loop_->Introduce(std::move(own_address));
}
void FrontendEndpoint::Retire() { loop_->Retire(); }
Status FrontendEndpoint::Publish() { return loop_->Publish(); }
IpcFolder* FrontendEndpoint::folder() const { return loop_->folder_ ? &*loop_->folder_ : nullptr; }
void FrontendEndpoint::Send(int client_index, int seat, RequestType type, EncodedMessage message) {
  loop_->outgoing_.Push({client_index, seat, type, std::move(message)});
}
void FrontendEndpoint::Recycle(EngineCoreOutputs outputs) {
  loop_->spent_.Push(std::move(outputs));
}
void FrontendEndpoint::Close() { loop_->Close(); }
const FrontendEndpointOptions& FrontendEndpoint::options() const { return loop_->options_; }

}  // namespace tandem::wire
