#include "common/packets.h"

#include <catch2/catch.hpp>
#include <string>

namespace tandem {
namespace {

TEST_CASE("packets arrive whole, with the descriptors beside them") {
  auto sockets = *MakePacketSockets();
  const UniqueFd file = *MakeMemoryFile("test", "what it holds");
  const int fds[] = {file.get()};
  REQUIRE(SendPacket(sockets.first.get(), "first", fds).ok());
  REQUIRE(SendPacket(sockets.first.get(), std::string(kMaxPacketBytes, 'x')).ok());
  const StatusOr<Packet> first = ReceivePacket(sockets.second.get());
  REQUIRE(first.ok());
  CHECK(first->bytes == "first");
  REQUIRE(first->fds.size() == 1);
  CHECK(*ReadMemoryFile(first->fds[0].get()) == "what it holds");
  const StatusOr<Packet> second = ReceivePacket(sockets.second.get());
  REQUIRE(second.ok());
  CHECK(second->bytes.size() == kMaxPacketBytes);
  CHECK(second->fds.empty());
}

TEST_CASE("an empty socket times out, and one whose other end is gone says so") {
  auto sockets = *MakePacketSockets();
  CHECK(ReceivePacket(sockets.second.get(), 1).status().code() == StatusCode::kDeadlineExceeded);
  sockets.first.Reset();
  CHECK(ReceivePacket(sockets.second.get(), 1).status().code() == StatusCode::kUnavailable);
  CHECK(SendPacket(sockets.second.get(), "x").code() == StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem
