#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
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

// Creates the folder of the sockets and locks it: two servers in one folder would replace each
// other's sockets. Returns the lock's file descriptor.
StatusOr<int> TakeFolder(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(folder).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoError(errno, "mkdir " + folder);
  }
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) return ErrnoError(errno, "stat " + folder);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return FailedPreconditionError(folder + " must be a folder of this user with mode 0700");
  }
  const std::string path = folder + "/lock";
  const int fd = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoError(errno, "open " + path);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return AlreadyExistsError("another server runs in " + folder);
  }
  return fd;
}

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
        clients_(static_cast<size_t>(options_.num_clients)),
        engines_(static_cast<size_t>(options_.num_engines), clients_.size()),
        outgoing_([this] { wake_up_.Signal(); }) {}
  ~Loop() {
    if (lock_fd_ >= 0) close(lock_fd_);
  }

  Status Start();
  void Close();

  const FrontendEndpointOptions options_;
  zmq::context_t context_ = MakeContext();  // outlives every socket
  std::vector<Client> clients_;
  std::string handshake_address_;

  // Shared with other threads.
  WakeUp wake_up_;
  std::atomic<bool> stop_{false};

 private:
  void Run();
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
  void Lost(size_t seat, const std::string& why);
  void AcceptWaitingHello(size_t engine_index);
  // What a message's first frame names, below `limit`; or nullopt after logging it.
  std::optional<size_t> NumberOf(std::string_view identity, size_t limit, std::string_view what);

  Listening handshake_;
  EngineSeats engines_;
  InitMessage init_;
  int lock_fd_ = -1;
  PollSet poll_;
  ReceivedMessage received_;
  EncodedMessage encoded_;
  ComplaintLimit complaints_;
  std::vector<EngineCoreOutputs> spare_;
  std::vector<Outgoing> drained_;
  std::thread thread_;

 public:
  Mailbox<Outgoing> outgoing_;
  Mailbox<EngineCoreOutputs> spent_;
};

Status FrontendEndpoint::Loop::Start() {
  WarnIfOpenToNetwork(options_.handshake_address);
  WarnIfOpenToNetwork(options_.data_address);
  const bool is_ipc = options_.data_address.starts_with(kIpc);
  if (is_ipc) {
    ASSIGN_OR_RETURN(lock_fd_, TakeFolder(options_.data_address.substr(kIpc.size())));
  }
  handshake_.socket.Open(context_, zmq::socket_type::router);
  handshake_.socket.FollowPeers();
  handshake_.socket.Monitor(context_);
  RETURN_IF_ERROR(handshake_.socket.Bind(options_.handshake_address));
  handshake_address_ = handshake_.socket.bound_address();
  for (size_t i = 0; i < clients_.size(); ++i) {
    const std::string suffix = is_ipc ? "/input_" + std::to_string(i) : ":0";
    Socket& input = clients_[i].input.socket;
    input.Open(context_, zmq::socket_type::router);
    input.FollowPeers();
    input.NoticeVanishedHosts();
    input.Monitor(context_);
    RETURN_IF_ERROR(input.Bind(options_.data_address + suffix));
    init_.addresses.inputs.push_back(input.bound_address());

    Socket& output = clients_[i].output;
    output.Open(context_, zmq::socket_type::pull);
    RETURN_IF_ERROR(output.Bind(options_.data_address +
                                (is_ipc ? "/output_" + std::to_string(i) : std::string(":0"))));
    init_.addresses.outputs.push_back(output.bound_address());
  }
  poll_.Reset(wake_up_);
  poll_.Add(handshake_.socket);
  for (Client& client : clients_) {
    poll_.Add(client.input.socket);
    poll_.Add(client.output);
  }
  thread_ = std::thread([this] { Run(); });
  return OkStatus();
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
    SendOutgoing();
    for (size_t i = 0; i < clients_.size(); ++i) ReceiveOutputs(i);
    ApplyConnectionEvents();
    ReceiveHandshakes();
    for (size_t i = 0; i < clients_.size(); ++i) ReceiveReadyResponses(i);
  }
  SendOutgoing();
  handshake_.socket.Close(kLingerMs);
  for (Client& client : clients_) {
    client.input.socket.Close(kLingerMs);
    client.output.Close();
  }
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
}

void FrontendEndpoint::Loop::Refuse(size_t seat, const Status& why) {
  LOG_ERROR << "another engine " << engines_.IndexOf(seat) << " is refused: " << why.message();
  engines_[seat].state = SeatedEngine::State::kRefused;
  UtilityRequest call;
  call.method = kRefuseMethod;
  call.args = PackedStrings({why.message()});
  Outgoing out = {0, static_cast<int>(seat), RequestType::kUtility, {}};
  Encode(call, &out.message);
  outgoing_.Push(std::move(out));
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
std::string FrontendEndpoint::handshake_address() const { return loop_->handshake_address_; }
void FrontendEndpoint::Send(int client_index, int seat, RequestType type, EncodedMessage message) {
  loop_->outgoing_.Push({client_index, seat, type, std::move(message)});
}
void FrontendEndpoint::Recycle(EngineCoreOutputs outputs) {
  loop_->spent_.Push(std::move(outputs));
}
void FrontendEndpoint::Close() { loop_->Close(); }
const FrontendEndpointOptions& FrontendEndpoint::options() const { return loop_->options_; }

}  // namespace tandem::wire
