#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "proto_msgpack/wire_endpoint_frontend_loop.h"

namespace tandem::wire {

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
  if (!handshake_.socket.Send(frames)) {
    LOG_INFO << "engine " << engine_index << " left during its handshake";
    return;
  }
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
  FrontendClient& client = clients_[client_index];
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
  // One that it follows, or it itself before it connected again.
  for (const size_t before : {seat, (seat + engines_.num_engines()) % engines_.size()}) {
    if (!engines_[before].end.empty()) Lost(before);
  }
  const Status fits = engines_.CheckSuccessor(seat, response);
  if (!fits.ok()) return Refuse(seat, fits);
  engines_.SetReady(seat, response);
  LOG_INFO << "engine " << engines_.IndexOf(seat) << " is ready";
  for (const FrontendClient& each : clients_) {
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

void FrontendEndpoint::Loop::Refuse(size_t seat, const Status& why) {
  LOG_ERROR << "another engine " << engines_.IndexOf(seat) << " is refused: " << why.message();
  engines_[seat].state = SeatedEngine::State::kRefused;
  Call(seat, kRefuseMethod, PackedStrings({why.message()}));
}

bool FrontendEndpoint::Loop::HasConnectionEvents() const {
  return handshake_.socket.may_have_events() ||
         std::any_of(clients_.begin(), clients_.end(), [](const FrontendClient& each) {
           return each.input.socket.may_have_events() || each.output.socket.may_have_events();
         });
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
    Listening& output = clients_[i].output;
    while (output.socket.NextEvent(&event)) {
      if (event.opened) {
        output.connections.insert(event.connection);
      } else {
        ForgetOutputConnection(i, event.connection);
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
    End(i, "its connection closed");
  }
}

// A connection is reported closed after its last message has come.
void FrontendEndpoint::Loop::ForgetOutputConnection(size_t client_index, int connection) {
  ReceiveOutputs(client_index);
  clients_[client_index].output.connections.erase(connection);
  for (size_t i = 0; i < engines_.size(); ++i) {
    int& own = engines_[i].output_connections[client_index];
    if (own == connection) own = kClosedConnection;
  }
}

// The engine that has sent outputs over this connection, or the only one that may have.
std::optional<size_t> FrontendEndpoint::Loop::SeatOfOutputs(size_t client_index,
                                                            int connection) const {
  for (size_t i = 0; i < engines_.size(); ++i) {
    const int own = engines_[i].output_connections[client_index];
    if (own >= 0 && own == connection) return i;
  }
  return engines_.OnlyAlive();
}

// ---- Engines that go ----

// Of its connections the one for requests may close first, with outputs on the way in the others.
void FrontendEndpoint::Loop::End(size_t seat, const std::string& why) {
  SeatedEngine& engine = engines_[seat];
  const bool was_ready = engine.state == SeatedEngine::State::kReady;
  engine.state = SeatedEngine::State::kNew;
  engine.handshake_connection = -1;
  if (was_ready) {
    engine.end = why;
    engine.read_until = SystemClock().Monotonic() + options_.last_outputs_s;
  } else {
    AcceptWaitingHello(engines_.IndexOf(seat));
  }
}

bool FrontendEndpoint::Loop::MayHaveOutputs(size_t seat) const {
  for (size_t c = 0; c < clients_.size(); ++c) {
    if (MayHaveOutputs(seat, c)) return true;
  }
  return false;
}

bool FrontendEndpoint::Loop::MayHaveOutputs(size_t seat, size_t client_index) const {
  const int own = engines_[seat].output_connections[client_index];
  if (own != -1) return own >= 0;
  // Each engine has one. It is among those of which nothing was read yet, unless the others are as
  // many.
  std::set<int> unknown = clients_[client_index].output.connections;
  size_t num_others = 0;
  for (size_t i = 0; i < engines_.size(); ++i) {
    const int other = engines_[i].output_connections[client_index];
    if (other >= 0) unknown.erase(other);
    if (i != seat && other == -1 && engines_[i].alive()) ++num_others;
  }
  return unknown.size() > num_others;
}

void FrontendEndpoint::Loop::ReportEnds() {
  for (size_t i = 0; i < engines_.size(); ++i) {
    if (engines_[i].end.empty()) continue;
    const bool is_over = SystemClock().Monotonic() >= engines_[i].read_until;
    if (!is_over && MayHaveOutputs(i)) continue;
    Lost(i);
    AcceptWaitingHello(engines_.IndexOf(i));
  }
}

// Until an end is reported in any case.
int FrontendEndpoint::Loop::WaitMs() const {
  double wait_s = -1;
  for (size_t i = 0; i < engines_.size(); ++i) {
    const SeatedEngine& engine = engines_[i];
    if (engine.end.empty()) continue;
    const double left_s = std::max(0.0, engine.read_until - SystemClock().Monotonic());
    wait_s = wait_s < 0 ? left_s : std::min(wait_s, left_s);
  }
  return wait_s < 0 ? -1 : static_cast<int>(std::ceil(wait_s * 1000));
}

void FrontendEndpoint::Loop::Lost(size_t seat) {
  SeatedEngine& engine = engines_[seat];
  const std::string why = std::exchange(engine.end, {});
  engine.output_connections.assign(clients_.size(), -1);
  const std::string name = "engine " + std::to_string(engines_.IndexOf(seat));
  if (engines_.is_current(seat)) {
    LOG_ERROR << name << " is lost: " << why;
  } else {
    LOG_INFO << "the one that was " << name << " before has left";
  }
  const Status status = UnavailableError(name + " is lost: " + why);
  for (const FrontendClient& client : clients_) {
    if (client.callbacks.on_engine_lost) {
      client.callbacks.on_engine_lost(static_cast<int>(seat), status);
    }
  }
}

}  // namespace tandem::wire
