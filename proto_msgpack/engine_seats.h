#pragma once

// Where the engines of a frontend are: two seats for each engine index, so that an engine can take
// over from the one of its index. A seat's number is the index, or the index plus the number of
// engines; it is the engine's identity on the input sockets. Thread: the wire thread. Knows no
// sockets: the frontend's endpoint reports connections.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

// The engine in one seat: HELLO → connected → a ready response on each input → ready → ending.
// Alive while a connection that it sent one of these on is open, or outputs of it may be unread.
struct SeatedEngine {
  enum class State { kNew, kConnected, kReady, kRefused } state = State::kNew;
  int handshake_connection = -1;
  std::vector<int> input_connections;  // one per client, -1: none
  // One per client, -1: not known before its first output. What has closed has been read.
  std::vector<int> output_connections;
  // Why it is lost, once its last outputs have been read or this time has come. Empty: it is not.
  std::string end;
  double read_until = 0;
  // Of the ready response. They stay after its end.
  Peer peer = Peer::kForeign;
  std::optional<std::string> tokenizer_hash;

  bool alive() const;
  bool is_connected_to_all() const;
};
inline constexpr int kClosedConnection = -2;

// A HELLO that waits for a seat.
struct WaitingHello {
  int connection = -1;
  bool takes_over = false;
};

class EngineSeats {
 public:
  EngineSeats(size_t num_engines, size_t num_clients);

  size_t num_engines() const { return current_.size(); }
  size_t size() const { return engines_.size(); }
  SeatedEngine& operator[](size_t seat) { return engines_[seat]; }
  const SeatedEngine& operator[](size_t seat) const { return engines_[seat]; }
  size_t IndexOf(size_t seat) const { return seat % num_engines(); }
  // The only seat with an engine, if there is one such seat.
  std::optional<size_t> OnlyAlive() const;

  // The seat for an engine that sent HELLO over this connection; nullopt: it must wait. Engines
  // that do not take over may be other programs, which know no seat but their index.
  std::optional<size_t> SeatFor(size_t engine_index, int connection, bool takes_over) const;
  std::optional<WaitingHello>& waiting(size_t engine_index) { return waiting_[engine_index]; }

  // The engine is ready; from now on it is its index's current one.
  void SetReady(size_t seat, const EngineCoreReadyResponse& response);
  // OK unless this one cannot go on with the requests of the one of the index that is ready, or of
  // the one before, which may have died.
  Status CheckSuccessor(size_t seat, const EngineCoreReadyResponse& response) const;
  bool is_current(size_t seat) const { return current_[IndexOf(seat)] == seat; }

 private:
  std::vector<size_t> current_;                       // of each index, the seat that was ready last
  std::vector<std::optional<WaitingHello>> waiting_;  // of each index
  std::vector<SeatedEngine> engines_;                 // in each seat
};

}  // namespace tandem::wire
