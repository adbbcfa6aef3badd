#include "proto_msgpack/engine_seats.h"

#include <algorithm>
#include <numeric>

namespace tandem::wire {

bool SeatedEngine::alive() const {
  return handshake_connection >= 0 || !end.empty() ||
         std::any_of(input_connections.begin(), input_connections.end(),
                     [](int connection) { return connection >= 0; });
}

bool SeatedEngine::is_connected_to_all() const {
  return std::all_of(input_connections.begin(), input_connections.end(),
                     [](int connection) { return connection >= 0; });
}

EngineSeats::EngineSeats(size_t num_engines, size_t num_clients)
    : current_(num_engines), waiting_(num_engines), engines_(2 * num_engines) {
  std::iota(current_.begin(), current_.end(), size_t{0});
  for (SeatedEngine& engine : engines_) {
    engine.input_connections.assign(num_clients, -1);
    engine.output_connections.assign(num_clients, -1);
  }
}

std::optional<size_t> EngineSeats::OnlyAlive() const {
  std::optional<size_t> only;
  for (size_t seat = 0; seat < engines_.size(); ++seat) {
    if (!engines_[seat].alive()) continue;
    if (only) return std::nullopt;
    only = seat;
  }
  return only;
}

std::optional<size_t> EngineSeats::SeatFor(size_t engine_index, int connection,
                                           bool takes_over) const {
  const size_t own = engine_index, other = engine_index + num_engines();
  for (const size_t seat : {own, other}) {
    if (engines_[seat].alive() && engines_[seat].handshake_connection == connection) return seat;
  }
  // One that only ends its last requests does not keep the next one waiting.
  const bool is_vacant = !engines_[current_[engine_index]].alive();
  if (!engines_[own].alive() && (takes_over || is_vacant)) return own;
  if (!engines_[other].alive() && takes_over) return other;
  return std::nullopt;
}

void EngineSeats::SetReady(size_t seat, const EngineCoreReadyResponse& response) {
  current_[IndexOf(seat)] = seat;
  engines_[seat].state = SeatedEngine::State::kReady;
  engines_[seat].peer = response.peer();
  engines_[seat].tokenizer_hash = response.tokenizer_hash;
}

Status EngineSeats::CheckSuccessor(size_t seat, const EngineCoreReadyResponse& response) const {
  const SeatedEngine& current = engines_[current_[IndexOf(seat)]];
  if (is_current(seat) || current.state != SeatedEngine::State::kReady) {
    const bool differs =
        current.tokenizer_hash && current.tokenizer_hash != response.tokenizer_hash;
    if (!differs || response.peer() != Peer::kTandem) return OkStatus();
    return FailedPreconditionError(
        "the tokenizer in the model's folder is not that of the engine before, and the frontend's "
        "requests are token ids of that one; restart the frontend, too");
  }
  if (current.peer != Peer::kTandem || response.peer() != Peer::kTandem) {
    return FailedPreconditionError("only Tandem's engines take over from each other");
  }
  if (!current.tokenizer_hash || current.tokenizer_hash != response.tokenizer_hash) {
    return FailedPreconditionError(
        "the tokenizer in the model's folder is not that of the engine that serves now");
  }
  return OkStatus();
}

}  // namespace tandem::wire
