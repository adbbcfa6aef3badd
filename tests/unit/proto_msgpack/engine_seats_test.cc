#include "proto_msgpack/engine_seats.h"

#include <optional>
#include <string>

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

EngineCoreReadyResponse Ready(std::optional<std::string> tokenizer, bool is_ours = true) {
  EngineCoreReadyResponse response;
  if (is_ours) response.tandem_version = "1";
  response.tokenizer_hash = std::move(tokenizer);
  return response;
}

// As the endpoint does at HELLO, and when all inputs are connected.
void Sit(EngineSeats* seats, size_t seat, int connection) {
  (*seats)[seat].state = SeatedEngine::State::kConnected;
  (*seats)[seat].handshake_connection = connection;
}
void BecomeReady(EngineSeats* seats, size_t seat, int connection,
                 const EngineCoreReadyResponse& response) {
  (*seats)[seat].handshake_connection = -1;
  for (int& input : (*seats)[seat].input_connections) input = connection;
  seats->SetReady(seat, response);
}
void Die(EngineSeats* seats, size_t seat) {
  for (int& input : (*seats)[seat].input_connections) input = -1;
  (*seats)[seat].state = SeatedEngine::State::kNew;
}

TEST_CASE("engine seats: alive from HELLO until the last connection is closed") {
  EngineSeats seats(1, 2);
  SeatedEngine& engine = seats[0];
  CHECK_FALSE(engine.alive());
  Sit(&seats, 0, 4);
  CHECK(engine.alive());
  CHECK_FALSE(engine.is_connected_to_all());
  engine.input_connections = {5, -1};
  engine.handshake_connection = -1;
  CHECK(engine.alive());
  CHECK_FALSE(engine.is_connected_to_all());
  engine.input_connections = {5, 6};
  CHECK(engine.is_connected_to_all());
  Die(&seats, 0);
  CHECK_FALSE(engine.alive());
}

TEST_CASE("engine seats: an engine that does not take over sits at its index or waits") {
  EngineSeats seats(3, 1);
  CHECK(seats.size() == 6);
  for (size_t index = 0; index < 3; ++index) {
    CHECK(seats.IndexOf(index) == index);
    CHECK(seats.IndexOf(index + 3) == index);
    CHECK(seats.SeatFor(index, 10, false) == index);
  }
  Sit(&seats, 1, 10);
  CHECK(seats.SeatFor(1, 10, false) == 1);  // it says HELLO again
  CHECK_FALSE(seats.SeatFor(1, 11, false).has_value());
  CHECK(seats.SeatFor(2, 11, false) == 2);
  BecomeReady(&seats, 1, 20, Ready("a"));
  CHECK_FALSE(seats.SeatFor(1, 11, false).has_value());
  Die(&seats, 1);
  CHECK(seats.SeatFor(1, 11, false) == 1);
}

TEST_CASE("engine seats: two engines change seats, a third one waits for the first to leave") {
  EngineSeats seats(2, 1);
  BecomeReady(&seats, 1, 20, Ready("a"));
  CHECK(seats.is_current(1));
  CHECK(seats.SeatFor(1, 11, true) == 3);
  Sit(&seats, 3, 11);
  CHECK(seats.is_current(1));
  CHECK(seats.SeatFor(1, 11, true) == 3);
  CHECK_FALSE(seats.SeatFor(1, 12, true).has_value());
  BecomeReady(&seats, 3, 21, Ready("a"));
  CHECK(seats.is_current(3));
  CHECK_FALSE(seats.is_current(1));
  CHECK_FALSE(seats.SeatFor(1, 12, true).has_value());
  Die(&seats, 1);
  CHECK(seats.SeatFor(1, 12, true) == 1);
  // One that does not take over waits for the engine in the other seat.
  CHECK_FALSE(seats.SeatFor(1, 12, false).has_value());
  Die(&seats, 3);
  CHECK(seats.SeatFor(1, 12, false) == 1);
  CHECK(seats.SeatFor(0, 12, true) == 0);
}

// One that only ends its last requests does not keep another program's engine waiting.
TEST_CASE("engine seats: the index of a dead successor is vacant") {
  EngineSeats seats(1, 1);
  BecomeReady(&seats, 1, 20, Ready("a"));  // it has taken over
  Sit(&seats, 1, -1);
  BecomeReady(&seats, 1, 20, Ready("a"));
  seats[0].input_connections = {30};  // the one before has requests
  Die(&seats, 1);
  CHECK_FALSE(seats.SeatFor(0, 11, false).has_value());  // it knows no seat but its index
  CHECK(seats.SeatFor(0, 11, true) == 1);
}

TEST_CASE("engine seats: the only engine that is alive is known as such") {
  EngineSeats seats(2, 1);
  CHECK_FALSE(seats.OnlyAlive().has_value());
  Sit(&seats, 3, 9);
  CHECK(seats.OnlyAlive() == 3);
  Sit(&seats, 0, 8);
  CHECK_FALSE(seats.OnlyAlive().has_value());
}

TEST_CASE("engine seats: who may take over is ours and has the same tokenizer") {
  EngineSeats seats(1, 1);
  CHECK(seats.CheckSuccessor(0, Ready(std::nullopt, false)).ok());
  CHECK(seats.CheckSuccessor(1, Ready("b")).ok());  // from nobody
  BecomeReady(&seats, 0, 20, Ready("a"));
  CHECK(seats.CheckSuccessor(1, Ready("a")).ok());
  CHECK_FALSE(seats.CheckSuccessor(1, Ready("b")).ok());
  CHECK_FALSE(seats.CheckSuccessor(1, Ready(std::nullopt)).ok());
  CHECK_FALSE(seats.CheckSuccessor(1, Ready("a", false)).ok());
  seats.SetReady(0, Ready(std::nullopt));
  CHECK_FALSE(seats.CheckSuccessor(1, Ready(std::nullopt)).ok());  // neither is known
  seats.SetReady(0, Ready("a", false));
  CHECK_FALSE(seats.CheckSuccessor(1, Ready("a")).ok());
  Die(&seats, 0);
  CHECK(seats.CheckSuccessor(0, Ready("a")).ok());
  CHECK_FALSE(seats.CheckSuccessor(0, Ready("b")).ok());
  CHECK_FALSE(seats.CheckSuccessor(1, Ready("b")).ok());
  CHECK_FALSE(seats.CheckSuccessor(0, Ready(std::nullopt)).ok());
  CHECK(seats.CheckSuccessor(0, Ready(std::nullopt, false)).ok());  // nothing is resumed there
}

}  // namespace
}  // namespace tandem::wire
