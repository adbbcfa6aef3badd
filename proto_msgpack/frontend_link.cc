#include "proto_msgpack/frontend_link.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/clock.h"
#include "common/log.h"

namespace tandem::wire {
namespace {

constexpr int kHandshakeLingerMs = 5000;
constexpr int kOutputLingerMs = 4000;
// A frontend that does not listen yet, or for a moment: try again at once, then ever more rarely.
// On one host a try costs microseconds, and its pause is added to every start.
constexpr int kReconnectMs = 1;
constexpr int kMaxReconnectMs = 1000, kMaxLocalReconnectMs = 16;

int MaxReconnectMs(std::string_view address) {
  return address.starts_with("ipc://") ? kMaxLocalReconnectMs : kMaxReconnectMs;
}

}  // namespace

FrontendLink::FrontendLink(const Shared* shared, std::string address)
    : shared_(shared), address_(std::move(address)) {}

Status FrontendLink::Start() {
  handshake_.Open(*shared_->context, zmq::socket_type::dealer);
  handshake_.SetIdentity(EngineIdentity(shared_->options->engine_index));
  handshake_.SetReconnectInterval(kReconnectMs, kMaxReconnectMs);
  handshake_.NoticeVanishedHosts();
  SetKeys(&handshake_, address_);
  handshake_.Monitor(*shared_->context);
  RETURN_IF_ERROR(handshake_.Connect(address_));
  SendStatus(kStatusHello);
  shared_->on_new_sockets();
  return OkStatus();
}

void FrontendLink::SetKeys(Socket* socket, std::string_view address) const {
  const std::optional<TcpKeys>& keys = shared_->options->tcp_keys;
  if (keys && address.starts_with("tcp://")) socket->SetKeysToConnect(*keys);
}

void FrontendLink::SendStatus(std::string_view word) {
  EngineStatus status;
  status.status = word;
  status.local = shared_->options->local;
  status.headless = shared_->options->headless;
  status.takes_over = shared_->options->takes_over && word == kStatusHello;
  Encode(status, &encoded_);
  const std::string_view frames[] = {encoded_.body};
  handshake_.Send(frames);
}

void FrontendLink::AddTo(PollSet* poll) {
  poll->Add(handshake_);
  for (Client& each : clients_) poll->Add(each.input);
  coordinator_.AddTo(poll);
}

// ---- The handshake ----

void FrontendLink::ReceiveInit() {
  while (handshake_.may_have_input() && handshake_.Receive(&received_)) {
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
      seat_ = init.seat.value_or(shared_->options->engine_index);
      ConnectClients(init.addresses);
    }
  }
}

void FrontendLink::ConnectClients(const EngineAddresses& addresses) {
  const std::optional<int> first = shared_->admit(this, addresses);
  if (!first) return;
  first_client_ = *first;
  clients_.resize(addresses.inputs.size());
  for (size_t i = 0; i < clients_.size(); ++i) {
    const Status status = Connect(&clients_[i], addresses.inputs[i], addresses.outputs[i]);
    if (status.ok()) continue;
    LOG_ERROR << "the frontend's addresses cannot be used: " << status.message();
    clients_.clear();
    return;  // waits for the next frontend, whose addresses may be good
  }
  if (addresses.coordinator_input && addresses.coordinator_output) {
    const Status status = coordinator_.Start(shared_->context, *addresses.coordinator_input,
                                             *addresses.coordinator_output);
    if (!status.ok()) LOG_ERROR << "the coordinator's addresses: " << status.message();
  }
  phase_ = Phase::kConnecting;
  input_address_ = addresses.inputs.front();
  shared_->on_new_sockets();
  if (*shared_->ready) {
    for (Client& each : clients_) SendReadyResponse(&each);
  }
}

Status FrontendLink::Connect(Client* client, const std::string& input, const std::string& output) {
  client->input.Open(*shared_->context, zmq::socket_type::dealer);
  client->input.SetIdentity(EngineIdentity(seat_));
  client->input.SetReconnectInterval(kReconnectMs, MaxReconnectMs(input));
  client->input.NoticeVanishedHosts();
  client->output.Open(*shared_->context, zmq::socket_type::push);
  client->output.NoticeVanishedHosts();
  SetKeys(&client->input, input);
  SetKeys(&client->output, output);
  client->input.Monitor(*shared_->context);
  RETURN_IF_ERROR(client->input.Connect(input));
  return client->output.Connect(output);
}

void FrontendLink::AnnounceReady() {
  if (phase_ != Phase::kConnecting) return;
  for (Client& each : clients_) SendReadyResponse(&each);
  SendReadyWhenPossible();
}

void FrontendLink::SendReadyResponse(Client* client) {
  Encode(**shared_->ready, &encoded_);
  const std::string_view frames[] = {encoded_.body};
  client->input.Send(frames);
}

// READY ends the handshake; from then on the inputs' connections show that the frontend lives.
void FrontendLink::SendReadyWhenPossible() {
  if (phase_ != Phase::kConnecting || !*shared_->ready) return;
  for (const Client& each : clients_) {
    if (!each.was_connected) return;
  }
  SendStatus(kStatusReady);
  handshake_.Close(kHandshakeLingerMs);
  phase_ = Phase::kReady;
  shared_->on_new_sockets();
  LOG_INFO << "ready for " << clients_.size() << " client(s)";
}

// ---- Messages ----

void FrontendLink::ReceiveInputs() {
  coordinator_.Receive();
  for (Client& each : clients_) {
    while (each.input.may_have_input() && each.input.Receive(&received_)) {
      HandleInput(received_.frames());
    }
  }
}

bool FrontendLink::IsOurs(int32_t client_index, std::string_view what) {
  if (Has(client_index)) return true;
  if (complaints_.Next()) {
    LOG_WARNING << "a " << what << " of client " << client_index << ", which does not exist";
  }
  return false;
}

void FrontendLink::HandleInput(std::span<const std::string_view> frames) {
  if (frames.size() < 2 || frames[0].size() != 1) {
    if (complaints_.Next()) {
      LOG_WARNING << "a message of " << frames.size() << " frames without a request type";
    }
    return;
  }
  const auto type = static_cast<uint8_t>(frames[0][0]);
  const size_t limit = shared_->options->max_message_bytes;
  auto input =
      received_.total_bytes() > limit
          ? ResourceExhaustedError("the request is larger than " + std::to_string(limit) + " bytes")
          : DecodeInput(type, frames.subspan(1));
  if (!input.ok()) {
    if (complaints_.Next()) {
      LOG_WARNING << "a message of type " << int{type}
                  << " cannot be decoded: " << input.status().message();
    }
    if (type == static_cast<uint8_t>(RequestType::kAdd)) RefuseAdd(frames[1], input.status());
    return;
  }
  if (auto* request = std::get_if<EngineCoreRequest>(&*input)) {
    if (!IsOurs(request->client_index, "request")) return;
    request->client_index += first_client_;
  }
  if (auto* call = std::get_if<UtilityRequest>(&*input)) {
    if (!IsOurs(call->client_index, "call") || shared_->handle_call(this, *call)) return;
    call->client_index += first_client_;
  }
  shared_->deliver(*std::move(input));
}

// A request that cannot be decoded still gets an error output, if its sender can be read.
void FrontendLink::RefuseAdd(std::string_view body, const Status& why) {
  const std::optional<Sender> sender = FindSender(body);
  if (!sender) return;
  EngineCoreOutputs outputs;
  outputs.timestamp = SystemClock().Monotonic();
  EngineCoreOutput& output = outputs.outputs.emplace_back();
  output.request_id = sender->request_id;
  output.finish_reason = FinishReason::kError;
  output.error = EngineCoreError{std::string(kErrorValidation), why.message(), false};
  outputs.finished_requests = {sender->request_id};
  Send(sender->client_index, &outputs);
}

void FrontendLink::Send(int client_index, EngineCoreOutputs* outputs) {
  if (!Has(client_index) || client(client_index).lost) return;
  outputs->engine_index = seat_;
  Encode(*outputs, &encoded_);
  frames_.assign(1, encoded_.body);
  frames_.insert(frames_.end(), encoded_.aux.begin(), encoded_.aux.end());
  client(client_index).output.Send(frames_);
}

void FrontendLink::ReportLoad(const SchedulerStats& stats, double timestamp) {
  coordinator_.Report(shared_->options->engine_index, stats, timestamp);
}

void FrontendLink::SetLeft(int client_index) {
  if (Has(client_index)) client(client_index).has_left = true;
}

bool FrontendLink::has_left() const {
  return std::all_of(clients_.begin(), clients_.end(),
                     [](const Client& each) { return each.has_left || each.lost; });
}

// ---- Connections ----

void FrontendLink::ApplyConnectionEvents() {
  ConnectionEvent event;
  bool all_lost = !clients_.empty();
  for (int i = 0; i < num_clients(); ++i) {
    Client& each = client(i);
    bool was_lost = false;  // since the last events; a new peer may have its address now
    while (each.input.may_have_events() && each.input.NextEvent(&event)) {
      each.comes_back = event.opened && each.lost;
      if (!event.opened) {
        LoseClient(i);
        was_lost = true;
        continue;
      }
      each.lost = was_lost;  // reported once; whether it is back is decided below
      each.was_connected = true;
    }
    all_lost = all_lost && each.lost;
  }
  if (all_lost) {
    lost_ = "its connections closed";
    return;
  }
  for (Client& each : clients_) {
    if (!std::exchange(each.comes_back, false)) continue;
    each.lost = false;
    // A client that comes back while others stayed must learn our identity again.
    if (*shared_->ready) SendReadyResponse(&each);
  }
  while (handshake_.may_have_events() && handshake_.NextEvent(&event)) {
    has_met_ = true;
    if (event.opened) continue;
    lost_ = "it left during the handshake";
    return;
  }
  SendReadyWhenPossible();
}

void FrontendLink::LoseClient(int client_index) {
  if (std::exchange(client(client_index).lost, true)) return;
  shared_->deliver(ClientLost{client_index + first_client_});
}

void FrontendLink::Lose() {
  for (int i = 0; i < num_clients(); ++i) LoseClient(i);
}

void FrontendLink::Close(bool is_dead) {
  for (Client& each : clients_) {
    if (is_dead && !each.lost) {
      const std::string_view frames[] = {kEngineCoreDead};
      each.output.Send(frames);
    }
    each.input.Close();
    each.output.Close(each.lost ? 0 : kOutputLingerMs);
  }
  handshake_.Close();
  coordinator_.Close();
}

}  // namespace tandem::wire
