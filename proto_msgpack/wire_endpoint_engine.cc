#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mailbox.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/msgpack_reader.h"
#include "proto_msgpack/wire_endpoint.h"
#include "proto_msgpack/wire_endpoint_socket.h"

namespace tandem::wire {
namespace {

constexpr int kHandshakeLingerMs = 5000;
constexpr int kOutputLingerMs = 4000;
constexpr size_t kMaxSpent = 16;  // messages whose memory is kept
// An engine often starts some milliseconds before its frontend: try again at once, then ever
// more rarely, up to once a second.
constexpr int kReconnectMs = 1;
constexpr int kMaxReconnectMs = 1000;

// One frontend client: where its requests come from and where its outputs go.
struct Client {
  Socket input;
  Socket output;
  bool was_connected = false;
  bool lost = false;
  bool has_left = false;    // it sends requests to another engine
  bool comes_back = false;  // since the last events
};

struct Outgoing {
  int client_index = 0;
  EngineCoreOutputs outputs;
  std::optional<EngineCoreReadyResponse> ready;
};

}  // namespace

class EngineEndpoint::Loop {
 public:
  Loop(EngineEndpointOptions options, std::function<void(EngineInput)> deliver)
      : options_(std::move(options)),
        deliver_(std::move(deliver)),
        outgoing_([this] { wake_up_.Signal(); }) {}

  Status Start();
  void Close(bool is_dead);

 private:
  // kHello: waiting for the addresses. kConnecting: waiting for the model and for the connections
  // to open. kReady: READY was sent.
  enum class Phase { kHello, kConnecting, kReady };

  void Run();
  void StartHandshake();
  void Restart(const std::string& why);
  void ReceiveInit();
  void ConnectClients(const EngineAddresses& addresses);
  void SendReadyResponse(Client* client);
  void SendReadyWhenPossible();
  void SendStatus(std::string_view word);
  void ReceiveInputs(Client* client);
  void HandleInput(std::span<const std::string_view> frames);
  bool HandleOwnCall(const UtilityRequest& call);
  void AnswerPing(const UtilityRequest& call);
  void Leave(int32_t client_index);
  void RefuseAdd(std::string_view body, const Status& why);
  void ApplyConnectionEvents();
  void LoseClient(size_t client_index);
  void SendOutgoing();
  void SendOutputs(Outgoing* out);
  void RebuildPollSet();

  const EngineEndpointOptions options_;
  const std::function<void(EngineInput)> deliver_;
  WakeUp wake_up_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> dead_{false};

  zmq::context_t context_ = MakeContext();  // outlives every socket
  Socket handshake_;
  std::vector<Client> clients_;
  Phase phase_ = Phase::kHello;
  int seat_ = 0;             // what the frontend calls this engine
  bool is_leaving_ = false;  // no other frontend is looked for
  std::optional<EngineCoreReadyResponse> ready_;
  PollSet poll_;
  ReceivedMessage received_;
  EncodedMessage encoded_;
  ComplaintLimit complaints_;
  std::vector<std::string_view> frames_;
  std::vector<Outgoing> drained_;
  std::thread thread_;

 public:
  Mailbox<Outgoing> outgoing_;
  Mailbox<EngineCoreOutputs> spent_;
  std::vector<EngineCoreOutputs> spare_;  // the loop thread's
};

Status EngineEndpoint::Loop::Start() {
  StartHandshake();
  // A wrong address fails here; a missing frontend is not an error.
  RETURN_IF_ERROR(handshake_.Connect(options_.handshake_address));
  SendStatus(kStatusHello);
  RebuildPollSet();
  thread_ = std::thread([this] { Run(); });
  return OkStatus();
}

void EngineEndpoint::Loop::StartHandshake() {
  phase_ = Phase::kHello;
  handshake_.Open(context_, zmq::socket_type::dealer);
  handshake_.SetIdentity(EngineIdentity(options_.engine_index));
  handshake_.SetReconnectInterval(kReconnectMs, kMaxReconnectMs);
  handshake_.NoticeVanishedHosts();
  handshake_.Monitor(context_);
}

void EngineEndpoint::Loop::Close(bool is_dead) {
  if (!thread_.joinable()) return;
  dead_ = is_dead;
  stop_ = true;
  wake_up_.Signal();
  thread_.join();
}

void EngineEndpoint::Loop::Run() {
  SetThreadName("wire");
  while (!stop_) {
    poll_.Wait();
    wake_up_.Clear();
    SendOutgoing();
    for (Client& client : clients_) ReceiveInputs(&client);
    ReceiveInit();
    ApplyConnectionEvents();
  }
  SendOutgoing();
  for (Client& client : clients_) {
    if (dead_ && !client.lost) {
      const std::string_view frames[] = {kEngineCoreDead};
      client.output.Send(frames);
    }
    client.input.Close();
    client.output.Close(client.lost ? 0 : kOutputLingerMs);
  }
  handshake_.Close();
}

// Starts from the beginning: the frontend is gone, the next one needs a HELLO.
void EngineEndpoint::Loop::Restart(const std::string& why) {
  // INFO: a frontend may come and go. The loop logs the requests that it drops.
  LOG_INFO << "the frontend is gone (" << why << "), waiting for the next at "
           << options_.handshake_address;
  for (size_t i = 0; i < clients_.size(); ++i) LoseClient(i);
  clients_.clear();
  if (is_leaving_) {
    handshake_.Close();
    return RebuildPollSet();
  }
  StartHandshake();
  const Status status = handshake_.Connect(options_.handshake_address);
  CHECK(status.ok()) << status.ToString();  // it was good in Start
  SendStatus(kStatusHello);
  RebuildPollSet();
}

void EngineEndpoint::Loop::SendStatus(std::string_view word) {
  EngineStatus status;
  status.status = word;
  status.local = options_.local;
  status.headless = options_.headless;
  status.takes_over = options_.takes_over && word == kStatusHello;
  Encode(status, &encoded_);
  const std::string_view frames[] = {encoded_.body};
  handshake_.Send(frames);
}

void EngineEndpoint::Loop::ReceiveInit() {
  while (handshake_.is_open() && handshake_.Receive(&received_)) {
    InitMessage init;
    const Status status = Decode(received_.frames(), &init);
    if (phase_ != Phase::kHello) {
      LOG_WARNING << "the frontend repeats its first message";
    } else if (!status.ok()) {
      LOG_WARNING << "the frontend's first message cannot be decoded: " << status.message();
    } else if (init.addresses.inputs.empty() ||
               init.addresses.inputs.size() != init.addresses.outputs.size()) {
      LOG_WARNING << "the frontend lists " << init.addresses.inputs.size() << " inputs and "
                  << init.addresses.outputs.size() << " outputs";
    } else {
      seat_ = init.seat.value_or(options_.engine_index);
      ConnectClients(init.addresses);
    }
  }
}

void EngineEndpoint::Loop::ConnectClients(const EngineAddresses& addresses) {
  if (addresses.coordinator_input) {
    LOG_WARNING << "the frontend names a data-parallel coordinator, which is not used";
  }
  clients_.resize(addresses.inputs.size());
  for (size_t i = 0; i < clients_.size(); ++i) {
    Client& client = clients_[i];
    client.input.Open(context_, zmq::socket_type::dealer);
    client.input.SetIdentity(EngineIdentity(seat_));
    client.input.SetReconnectInterval(kReconnectMs, kMaxReconnectMs);
    client.input.NoticeVanishedHosts();
    client.output.Open(context_, zmq::socket_type::push);
    client.output.NoticeVanishedHosts();
    client.input.Monitor(context_);
    Status status = client.input.Connect(addresses.inputs[i]);
    if (status.ok()) status = client.output.Connect(addresses.outputs[i]);
    if (!status.ok()) {
      LOG_ERROR << "the frontend's addresses cannot be used: " << status.message();
      clients_.clear();
      return;  // waits for the next frontend, whose addresses may be good
    }
  }
  phase_ = Phase::kConnecting;
  RebuildPollSet();
  if (ready_) {
    for (Client& client : clients_) SendReadyResponse(&client);
  }
}

void EngineEndpoint::Loop::SendReadyResponse(Client* client) {
  Encode(*ready_, &encoded_);
  const std::string_view frames[] = {encoded_.body};
  client->input.Send(frames);
}

// READY ends the handshake; from then on the inputs' connections show that the frontend lives.
void EngineEndpoint::Loop::SendReadyWhenPossible() {
  if (phase_ != Phase::kConnecting || !ready_) return;
  for (const Client& client : clients_) {
    if (!client.was_connected) return;
  }
  SendStatus(kStatusReady);
  handshake_.Close(kHandshakeLingerMs);
  phase_ = Phase::kReady;
  RebuildPollSet();
  LOG_INFO << "ready for " << clients_.size() << " client(s)";
}

void EngineEndpoint::Loop::ReceiveInputs(Client* client) {
  while (client->input.Receive(&received_)) HandleInput(received_.frames());
}

void EngineEndpoint::Loop::HandleInput(std::span<const std::string_view> frames) {
  if (frames.size() < 2 || frames[0].size() != 1) {
    if (complaints_.Next()) {
      LOG_WARNING << "a message of " << frames.size() << " frames without a request type";
    }
    return;
  }
  const auto type = static_cast<uint8_t>(frames[0][0]);
  auto input = received_.total_bytes() > options_.max_message_bytes
                   ? ResourceExhaustedError("the request is larger than " +
                                            std::to_string(options_.max_message_bytes) + " bytes")
                   : DecodeInput(type, frames.subspan(1));
  if (auto* request = input.ok() ? std::get_if<EngineCoreRequest>(&*input) : nullptr) {
    if (request->client_index < 0 ||
        static_cast<size_t>(request->client_index) >= clients_.size()) {
      LOG_WARNING << "a request of client " << request->client_index << ", which does not exist";
      return;
    }
  }
  if (input.ok()) {
    const auto* call = std::get_if<UtilityRequest>(&*input);
    if (call != nullptr && HandleOwnCall(*call)) return;
    deliver_(*std::move(input));
    return;
  }
  if (complaints_.Next()) {
    LOG_WARNING << "a message of type " << int{type}
                << " cannot be decoded: " << input.status().message();
  }
  if (type == static_cast<uint8_t>(RequestType::kAdd)) RefuseAdd(frames[1], input.status());
}

bool EngineEndpoint::Loop::HandleOwnCall(const UtilityRequest& call) {
  if (call.method == kPingMethod) {
    AnswerPing(call);
  } else if (call.method == kLeaveMethod) {
    Leave(call.client_index);
  } else if (call.method == kRefuseMethod) {
    MsgpackReader arguments(call.args.packed);
    const bool has_reason = arguments.ArraySize() > 0;
    is_leaving_ = true;
    const std::string why = has_reason ? std::string(arguments.String()) : "no reason given";
    if (options_.on_leave) options_.on_leave(FailedPreconditionError(why));
  } else {
    return false;
  }
  return true;
}

void EngineEndpoint::Loop::AnswerPing(const UtilityRequest& call) {
  Outgoing out;
  out.client_index = call.client_index;
  out.outputs.timestamp = SystemClock().Monotonic();
  out.outputs.utility_output.emplace().call_id = call.call_id;
  SendOutputs(&out);
}

void EngineEndpoint::Loop::Leave(int32_t client_index) {
  if (client_index < 0 || static_cast<size_t>(client_index) >= clients_.size()) return;
  clients_[static_cast<size_t>(client_index)].has_left = true;
  const bool all = std::all_of(clients_.begin(), clients_.end(),
                               [](const Client& client) { return client.has_left || client.lost; });
  if (!all || std::exchange(is_leaving_, true)) return;
  if (options_.on_leave) options_.on_leave(OkStatus());
}

// A request that cannot be decoded still gets an error output, if its sender can be read.
void EngineEndpoint::Loop::RefuseAdd(std::string_view body, const Status& why) {
  const std::optional<Sender> sender = FindSender(body);
  if (!sender) return;
  Outgoing out;
  out.client_index = sender->client_index;
  out.outputs.timestamp = SystemClock().Monotonic();
  EngineCoreOutput& output = out.outputs.outputs.emplace_back();
  output.request_id = sender->request_id;
  output.finish_reason = FinishReason::kError;
  output.error = EngineCoreError{std::string(kErrorValidation), why.message(), false};
  out.outputs.finished_requests = {sender->request_id};
  SendOutputs(&out);
}

void EngineEndpoint::Loop::ApplyConnectionEvents() {
  ConnectionEvent event;
  bool all_lost = !clients_.empty();
  for (size_t i = 0; i < clients_.size(); ++i) {
    Client& client = clients_[i];
    bool was_lost = false;  // since the last events; a new peer may have its address now
    while (client.input.NextEvent(&event)) {
      client.comes_back = event.opened && client.lost;
      if (!event.opened) {
        LoseClient(i);
        was_lost = true;
        continue;
      }
      client.lost = was_lost;  // reported once; whether it is back is decided below
      client.was_connected = true;
    }
    all_lost = all_lost && client.lost;
  }
  if (all_lost) return Restart("its connections closed");
  for (Client& client : clients_) {
    if (!std::exchange(client.comes_back, false)) continue;
    client.lost = false;
    // A client that comes back while others stayed must learn our identity again.
    if (ready_) SendReadyResponse(&client);
  }
  while (handshake_.NextEvent(&event)) {
    if (!event.opened) return Restart("it left during the handshake");
  }
  SendReadyWhenPossible();
}

void EngineEndpoint::Loop::LoseClient(size_t client_index) {
  if (clients_[client_index].lost) return;
  clients_[client_index].lost = true;
  deliver_(ClientLost{static_cast<int32_t>(client_index)});
}

void EngineEndpoint::Loop::SendOutgoing() {
  if (!outgoing_.Drain(&drained_)) return;
  for (Outgoing& out : drained_) {
    if (out.ready) {
      ready_ = std::move(out.ready);
      if (phase_ != Phase::kConnecting) continue;
      for (Client& client : clients_) SendReadyResponse(&client);
      SendReadyWhenPossible();
      continue;
    }
    SendOutputs(&out);
    spent_.Push(std::move(out.outputs));
  }
  drained_.clear();
}

void EngineEndpoint::Loop::SendOutputs(Outgoing* out) {
  const auto client_index = static_cast<size_t>(out->client_index);
  if (client_index >= clients_.size() || clients_[client_index].lost) return;
  out->outputs.engine_index = seat_;
  Encode(out->outputs, &encoded_);
  frames_.assign(1, encoded_.body);
  frames_.insert(frames_.end(), encoded_.aux.begin(), encoded_.aux.end());
  clients_[client_index].output.Send(frames_);
}

void EngineEndpoint::Loop::RebuildPollSet() {
  poll_.Reset(wake_up_);
  poll_.Add(handshake_);
  for (Client& client : clients_) poll_.Add(client.input);
}

EngineEndpoint::EngineEndpoint(EngineEndpointOptions options,
                               std::function<void(EngineInput)> deliver)
    : loop_(std::make_unique<Loop>(std::move(options), std::move(deliver))) {}
EngineEndpoint::~EngineEndpoint() { Close(); }

Status EngineEndpoint::Start() { return loop_->Start(); }
void EngineEndpoint::AnnounceReady(EngineCoreReadyResponse response) {
  loop_->outgoing_.Push({0, {}, std::move(response)});
}
void EngineEndpoint::Send(int client_index, EngineCoreOutputs outputs) {
  CHECK(!outputs.is_empty());
  loop_->outgoing_.Push({client_index, std::move(outputs), std::nullopt});
}
EngineCoreOutputs EngineEndpoint::TakeSpent() {
  if (loop_->spare_.empty()) loop_->spent_.Drain(&loop_->spare_);
  if (loop_->spare_.empty()) return {};
  if (loop_->spare_.size() > kMaxSpent) loop_->spare_.resize(kMaxSpent);
  EngineCoreOutputs outputs = std::move(loop_->spare_.back());
  loop_->spare_.pop_back();
  return outputs;
}
void EngineEndpoint::Close() { loop_->Close(false); }
void EngineEndpoint::CloseDead() { loop_->Close(true); }

}  // namespace tandem::wire
