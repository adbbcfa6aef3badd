#include "proto_msgpack/handshake_address.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

using Catch::Contains;

TEST_CASE("handshake address: the given one, else tcp at the data-parallel address") {
  CHECK(ResolveHandshakeAddress("tcp://a:1", "b", 2).value() == "tcp://a:1");
  CHECK(ResolveHandshakeAddress("", "10.0.0.1", 29550).value() == "tcp://10.0.0.1:29550");
  CHECK(ResolveHandshakeAddress("", "", 1).value().starts_with("ipc:///"));
  CHECK_FALSE(ResolveHandshakeAddress("udp://a:1", "", 1).ok());
}

TEST_CASE("handshake address: an IPv6 address is known with and without brackets") {
  CHECK(ResolveHandshakeAddress("", "fd00::1", 29550).value() == "tcp://[fd00::1]:29550");
  CHECK(ResolveHandshakeAddress("", "[fd00::1]", 29550).value() == "tcp://[fd00::1]:29550");
  CHECK_FALSE(IsOpenToNetwork(TcpAddress("::1", 5)));
  CHECK(IsOpenToNetwork(TcpAddress("fd00::1", 5)));
}

TEST_CASE("handshake address: one that names no host is refused, because engines connect to it") {
  for (const char* host : {"0.0.0.0", "*", "::", "[::]"}) {
    INFO(host);
    CHECK_THAT(ResolveHandshakeAddress("", host, 5).status().message(), Contains("names no host"));
    CHECK_THAT(ResolveHandshakeAddress(TcpAddress(host, 5), "", 5).status().message(),
               Contains("names no host"));
  }
}

}  // namespace
}  // namespace tandem::wire
