#include "common/log.h"
#include "proto_msgpack/wire_endpoint_frontend_loop.h"

namespace tandem::wire {
namespace {

constexpr int kLingerMs = 1000;
constexpr size_t kMaxSpent = 16;  // messages whose memory is kept

constexpr std::string_view kInput = "input_", kOutput = "output_";

}  // namespace

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
  if (options_.tcp_keys) {
    RETURN_IF_ERROR(gate_.Open(&context_, options_.tcp_keys->peer_public));
  } else {
    WarnIfOpenToNetwork(options_.handshake_address);
    WarnIfOpenToNetwork(options_.data_address);
  }
  folder_ = std::move(folder);
  RETURN_IF_ERROR(BindHandshake());
  RETURN_IF_ERROR(BindClients());
  if (!options_.group_master.empty()) {
    RETURN_IF_ERROR(group_.Start(&context_, options_.data_address, options_.group_master,
                                 options_.num_engines, &init_));
  }
  poll_.Reset(wake_up_);
  gate_.AddTo(&poll_);
  poll_.Add(handshake_.socket);
  for (FrontendClient& client : clients_) {
    poll_.Add(client.input.socket);
    poll_.Add(client.output.socket);
  }
  group_.AddTo(&poll_);
  return OkStatus();
}

void FrontendEndpoint::Loop::Protect(Socket* socket) const {
  socket->RefuseOtherUsers();
  if (options_.tcp_keys) socket->SetKeysToBind(*options_.tcp_keys);
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
  Protect(&handshake_.socket);
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
    Protect(&input);
    RETURN_IF_ERROR(input.Bind(address(kInput)));
    init_.addresses.inputs.push_back(input.bound_address());

    Socket& output = clients_[i].output.socket;
    output.Open(context_, zmq::socket_type::pull);
    output.NoticeVanishedHosts();
    output.Monitor(context_);
    Protect(&output);
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
    poll_.Wait(WaitMs());
    gate_.Answer();
    RunCalls();
    SendOutgoing();
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i].output.socket.may_have_input()) ReceiveOutputs(i);
    }
    group_.Receive();
    if (HasConnectionEvents()) ApplyConnectionEvents();
    if (handshake_.socket.may_have_input()) ReceiveHandshakes();
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i].input.socket.may_have_input()) ReceiveReadyResponses(i);
    }
    ReportEnds();
  }
  RunCalls();
  SendOutgoing();
  if (!handshake_name().empty()) folder_->Withdraw(handshake_name());
  handshake_.socket.Close(kLingerMs);
  group_.Close();
  for (FrontendClient& client : clients_) {
    client.input.socket.Close(kLingerMs);
    client.output.socket.Close();
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
  for (const OutgoingMessage& out : drained_) {
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
  OutgoingMessage out = {0, static_cast<int>(seat), RequestType::kUtility, {}};
  Encode(call, &out.message);
  outgoing_.Push(std::move(out));
}

void FrontendEndpoint::Loop::ReceiveOutputs(size_t client_index) {
  while (clients_[client_index].output.socket.Receive(&received_)) HandleOutputs(client_index);
}

void FrontendEndpoint::Loop::HandleOutputs(size_t client_index) {
  const auto frames = received_.frames();
  const int connection = received_.connection();
  if (frames.size() == 1 && frames[0] == kEngineCoreDead) {
    // The message does not name its engine. One that has sent no outputs and is one of several also
    // closes its connections, which identifies it.
    LOG_ERROR << "an engine reports that it is dead";
    const std::optional<size_t> seat = SeatOfOutputs(client_index, connection);
    if (!seat) return;
    engines_[*seat].output_connections[client_index] = kClosedConnection;  // that was the last one
    End(*seat, "it reported its own death");
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
  engines_[static_cast<size_t>(outputs.engine_index)].output_connections[client_index] = connection;
  const FrontendClient& client = clients_[client_index];
  if (client.callbacks.on_outputs) client.callbacks.on_outputs(std::move(outputs));
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
